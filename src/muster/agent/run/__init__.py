"""While ranks run: nursery and keepers, which start ranks, record their ends and leave no process behind."""
