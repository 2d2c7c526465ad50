"""What fits nncfx into other libraries; each module needs the library that it is called after."""
