"""What every runtime offers: build, bind, run, close."""
