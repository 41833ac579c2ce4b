package server

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Container is what the container of a Tomcat may use, and what its JVM is reported.
type Container struct {
	MemoryMB int     // 0 = no limit
	CPUs     float64 // 0 = no quota
	JavaOpts string  // options of the JVM
	Starting bool    // it is not waited for until it serves
}

const (
	dockerTomcatHome   = "/usr/share/tomcat10"
	dockerTomcatServer = `<Server port="-1"><Service name="Catalina">
	<Connector port="{{.BackPort}}" address="{{.ProxyAddr}}" protocol="HTTP/1.1" maxThreads="50"/>
	<Engine name="Catalina" defaultHost="localhost"><Host name="localhost" appBase="webapps"/></Engine>
</Service></Server>
`
	dockerTomcatWeb = `<web-app xmlns="https://jakarta.ee/xml/ns/jakartaee" version="6.0">
	<servlet><servlet-name>jsp</servlet-name><servlet-class>org.apache.jasper.servlet.JspServlet</servlet-class><load-on-startup>3</load-on-startup></servlet>
	<servlet-mapping><servlet-name>jsp</servlet-name><url-pattern>*.jsp</url-pattern></servlet-mapping>
	<welcome-file-list><welcome-file>index.jsp</welcome-file></welcome-file-list>
</web-app>
`
	// A cache that may take a third of the heap: harmless in a heap that fits. It
	// fills 256 MB in two seconds of the incident's load, so that whoever looks sees
	// it happen; arrays from half a mebibyte on would take twice the room.
	dockerTomcatPage = `<%@ page import="java.util.*" %><%!
	static final List<byte[]> fares = new ArrayList<>();
	static final long most = Runtime.getRuntime().maxMemory() / 3;
	static long held;
%><%
	synchronized (fares) {
		if (held < most) {
			byte[] fare = new byte[384 << 10];
			Arrays.fill(fare, (byte) 1);
			fares.add(fare);
			held += fare.length;
		}
	}
%>Hello World
`
)

// dockerTomcat starts a Docker engine, a Tomcat in a container of it, and nginx. Java
// and Tomcat are the host's.
func (s *starter) dockerTomcat() error {
	if err := s.engine(); err != nil {
		return err
	}
	serve, err := s.v.write("server.xml", dockerTomcatServer)
	if err != nil {
		return err
	}
	conf, err := os.ReadFile(serve)
	if err != nil {
		return err
	}
	image := filepath.Join(s.dockerDir(), "image.tar")
	err = writeImage(image, map[string]string{
		"etc/passwd":          "root:x:0:0:root:/root:/bin/sh\n", // without a name for its user a JVM publishes nothing
		"app/conf/server.xml": string(conf), "app/conf/web.xml": dockerTomcatWeb, "app/webapps/ROOT/index.jsp": dockerTomcatPage,
		"app/logs/.keep": "", "app/temp/.keep": "", "app/work/.keep": "",
	})
	if err != nil {
		return fmt.Errorf("image: %w", err)
	}
	java, err := filepath.EvalSymlinks("/usr/bin/java")
	if err != nil {
		return err
	}
	t := s.v.Container
	run := []string{"run", "--detach", "--name", "booking", "--network", "host", "--volume", "/usr:/usr:ro",
		"--env", "JRE_HOME=" + filepath.Dir(filepath.Dir(java)), "--env", "CATALINA_HOME=" + dockerTomcatHome, "--env", "CATALINA_BASE=/app", "--env", "JAVA_OPTS='" + t.JavaOpts + "'"}
	settings, _ := filepath.Glob("/etc/java-*-openjdk") // Debian's JVMs have links to there
	for _, dir := range settings {
		run = append(run, "--volume", dir+":"+dir+":ro")
	}
	if t.MemoryMB > 0 {
		run = append(run, "--memory", fmt.Sprintf("%dm", t.MemoryMB))
	}
	if t.CPUs > 0 {
		run = append(run, "--cpus", fmt.Sprintf("%g", t.CPUs))
	}
	run = append(run, "booking:1", dockerTomcatHome+"/bin/catalina.sh", "run")
	script := s.dockerCommand("import", image, "booking:1") + " && " + s.dockerCommand(run...)
	if _, err := s.box.Server.Output(s.ctx, "sh", "-c", script); err != nil {
		return err
	}
	if !t.Starting {
		err := s.box.Server.Listening(s.ctx, s.v.BackPort)
		if err != nil { // a JVM may take twice as long as that waits
			err = s.box.Server.Listening(s.ctx, s.v.BackPort)
		}
		if err == nil { // its page is compiled when it is asked for the first time
			ask := fmt.Sprintf(`until { exec 3<>/dev/tcp/%s/%d; printf 'GET / HTTP/1.0\r\n\r\n' >&3; grep -q Hello <&3; }; do sleep 0.2; done`, s.v.ProxyAddr, s.v.BackPort)
			_, err = s.box.Server.Output(s.ctx, "timeout", "20", "bash", "-c", ask)
		}
		if err != nil {
			said, _ := s.box.Server.Output(s.ctx, "timeout", "5", "sh", "-c", s.dockerCommand("logs", "booking")+" 2>&1")
			return fmt.Errorf("tomcat: %w: %s", err, strings.TrimSpace(string(tail([]byte(said), 800))))
		}
	}
	return s.front()
}
