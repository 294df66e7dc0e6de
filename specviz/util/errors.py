"""Errors that several rooms know."""


class ServerError(Exception):
    """Another program's server does not answer, or not as its protocol says."""
