"""The rules as rows of a table, by what they are about. Pure."""
