"""The version of this Muster."""

VERSION = "0.1.0"
