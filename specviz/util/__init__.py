"""Helpers for every room: files, text and checks of arguments."""
