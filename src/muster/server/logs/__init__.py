"""Reading what ranks print: in order of arrival, from a cursor, by line, by pattern."""
