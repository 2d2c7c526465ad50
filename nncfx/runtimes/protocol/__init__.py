"""The interface of runtimes: build, bind, run, close."""
