//! A client and a server of grpcio, in Python.
