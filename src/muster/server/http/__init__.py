"""The HTTP application: its gate, TLS, ranges, uploads, and how other machines reach it."""

from starlette.convertors import PathConvertor, register_url_convertor


class AnyPath(PathConvertor):
    """The rest of an address, with line breaks where a file's name has some."""

    regex = r"(?s:.*)"


# Before any route is made, in place of the one that ends at a line break.
register_url_convertor("path", AnyPath())
