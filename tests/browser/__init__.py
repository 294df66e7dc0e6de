"""What only a browser can show: the step-through in JupyterLab and in a saved page, how fast it paints, and how it looks."""
