"""Tests in a browser: the step-through in JupyterLab and in a saved page, its speed, its look."""
