"""One typed vocabulary for everything that crosses a border. Standard library only: agents read it.

`message` says what a message is, `codec` turns messages into JSON and back; every other module holds the messages
about one noun. What the server sends and what its clients read are the same classes.
"""
