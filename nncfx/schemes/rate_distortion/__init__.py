"""Rounding that weighs what an error costs against the bits that it saves."""
