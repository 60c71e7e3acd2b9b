"""The account book of a GPU node."""

__version__ = "0.1.0.dev0"
