package server

import (
	"fmt"
	"os"
	"path/filepath"
)

const tomcatServer = `<Server port="-1"><Service name="Catalina">
	<Connector port="{{.FrontPort}}" address="{{.ServerAddr}}" protocol="HTTP/1.1"
		maxThreads="{{.Workers.Max}}" minSpareThreads="{{.SpareThreads}}" acceptCount="{{.AppBacklog}}"/>
	<Engine name="Catalina" defaultHost="localhost"><Host name="localhost" appBase="webapps"/></Engine>
</Service></Server>
`

const tomcatPage = `<% Thread.sleep({{.Workers.Work.Milliseconds}}); %>Hello World
`

// SpareThreads is how many threads a connector has from the start.
func (v values) SpareThreads() int { return min(4, v.Workers.Max) }

// tomcat starts a Tomcat whose page waits, and has it compile that page.
func (s *starter) tomcat() error {
	for _, d := range []string{"logs", "temp", "work"} {
		if err := os.MkdirAll(filepath.Join(s.box.Dir, "tomcat", d), 0o755); err != nil {
			return err
		}
	}
	for name, text := range map[string]string{"conf/server.xml": tomcatServer, "conf/web.xml": dockerTomcatWeb, "webapps/ROOT/index.jsp": tomcatPage} {
		if _, err := s.v.write("tomcat/"+name, text); err != nil {
			return err
		}
	}
	base := filepath.Join(s.box.Dir, "tomcat")
	if err := s.run(s.v.FrontPort, "tomcat", "env", "CATALINA_HOME="+dockerTomcatHome, "CATALINA_BASE="+base, "JAVA_OPTS=-Xmx128m",
		dockerTomcatHome+"/bin/catalina.sh", "run"); err != nil {
		return err
	}
	first := fmt.Sprintf("import urllib.request; urllib.request.urlopen('http://%s:%d/', timeout=15)", s.v.ServerAddr, s.v.FrontPort)
	_, err := s.box.Server.Output(s.ctx, python, "-c", first)
	return err
}
