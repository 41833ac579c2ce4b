// Package tomcat reads how many requests a running Tomcat takes up at once, and
// what it says in its logs over one window. A Tomcat inside a Java program of
// its own (Spring Boot) and Jetty are known by the names of their threads.
//
// In: the processes of the host, and through /proc/PID/root server.xml and the
// logs as that Tomcat sees them. Out: one observe.AppServer per Java process:
// for each connector maxThreads, acceptCount and the port, with file and line;
// where there is no server.xml, how many threads it has made of each pool.
//
// It never runs Java, never attaches to it, never writes, and concludes nothing.
package tomcat
