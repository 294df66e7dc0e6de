"""`specviz study schematics`: one drawing for each idea of the course, and the page of notation.

Contract: drawings are made by code, from no run. Each is an SVG that follows the reader's colour
scheme. Not known here: models and records.
"""
