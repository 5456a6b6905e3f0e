"""Stands in front of pydantic, and says what Python says where there is none."""

raise ModuleNotFoundError("No module named 'pydantic'", name="pydantic")
