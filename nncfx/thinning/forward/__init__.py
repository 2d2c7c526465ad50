"""The forward of a module as a graph whose sizes can change."""
