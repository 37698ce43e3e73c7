"""One typed vocabulary for everything that crosses a process boundary. Standard library only: agents import it.

`message` defines what a message is, `codec` converts messages to JSON and back; every other module holds the messages
of one topic. The server and its clients share the same classes.
"""
