package clickhousetest

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// Server is one ClickHouse 18.16.
type Server struct {
	HTTP string // host:port of its HTTP interface
	Dir  string // its data and logs

	shard, replica   int
	tcp, interserver int
	proc             *process
}

func newServer(dir string, shard, replica int) (*Server, error) {
	ports, err := freePorts(3)
	if err != nil {
		return nil, err
	}
	return &Server{HTTP: fmt.Sprintf("127.0.0.1:%d", ports[0]), Dir: dir, shard: shard, replica: replica, tcp: ports[1], interserver: ports[2]}, nil
}

// configure writes the configuration: everything below the server's directory.
// Its root is <yandex>, as old servers insist.
func (s *Server) configure(c *Cluster, zookeeper int, tidy bool) error {
	var remote strings.Builder
	for _, replicas := range c.Servers {
		fmt.Fprintf(&remote, "<shard><internal_replication>true</internal_replication>")
		for _, r := range replicas {
			fmt.Fprintf(&remote, "<replica><host>127.0.0.1</host><port>%d</port></replica>", r.tcp)
		}
		remote.WriteString("</shard>")
	}
	more := ""
	if zookeeper != 0 {
		// A short session: a server that was killed is found out soon. One that was stopped
		// looks for its expired session each minute by default, longer than a test waits.
		more = fmt.Sprintf("<zookeeper><node><host>127.0.0.1</host><port>%d</port></node><session_timeout_ms>4000</session_timeout_ms></zookeeper>", zookeeper)
	}
	merge := "<zookeeper_session_expiration_check_period>1</zookeeper_session_expiration_check_period>"
	if tidy {
		merge += "<old_parts_lifetime>3</old_parts_lifetime>"
	}
	more += "<merge_tree>" + merge + "</merge_tree>"
	_, port, _ := strings.Cut(s.HTTP, ":")
	config := fmt.Sprintf(`<yandex>
<logger><level>warning</level><log>%[1]s/server.log</log><errorlog>%[1]s/errors.log</errorlog><size>20M</size><count>1</count></logger>
<listen_host>127.0.0.1</listen_host><http_port>%[2]s</http_port><tcp_port>%[3]d</tcp_port>
<interserver_http_port>%[4]d</interserver_http_port><interserver_http_host>127.0.0.1</interserver_http_host>
<max_concurrent_queries>200</max_concurrent_queries><keep_alive_timeout>30</keep_alive_timeout>
<uncompressed_cache_size>0</uncompressed_cache_size><mark_cache_size>268435456</mark_cache_size>
<path>%[1]s/data/</path><tmp_path>%[1]s/tmp/</tmp_path><user_files_path>%[1]s/files/</user_files_path><format_schema_path>%[1]s/formats/</format_schema_path>
<users_config>%[1]s/users.xml</users_config><default_profile>default</default_profile><default_database>default</default_database>
<timezone>UTC</timezone><mlock_executable>false</mlock_executable>
<remote_servers><%[5]s>%[6]s</%[5]s></remote_servers>%[7]s
<macros><shard>%[8]d</shard><replica>%[9]d</replica></macros>
<distributed_ddl><path>/clickhouse/task_queue/ddl</path></distributed_ddl>
</yandex>
`, s.Dir, port, s.tcp, s.interserver, ClusterName, remote.String(), more, s.shard, s.replica)
	users := `<yandex>
<profiles><default><max_memory_usage>4000000000</max_memory_usage><load_balancing>in_order</load_balancing></default></profiles>
<users><default><password></password><networks><ip>127.0.0.1</ip></networks><profile>default</profile><quota>default</quota></default></users>
<quotas><default></default></quotas>
</yandex>
`
	for _, d := range []string{"data", "tmp", "files", "formats"} {
		if err := os.MkdirAll(filepath.Join(s.Dir, d), 0o700); err != nil {
			return err
		}
	}
	if err := os.WriteFile(filepath.Join(s.Dir, "config.xml"), []byte(config), 0o600); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(s.Dir, "users.xml"), []byte(users), 0o600)
}

func (s *Server) begin() error {
	program, err := exec.LookPath("clickhouse-server")
	if err != nil {
		return fmt.Errorf("clickhouse-server: %w", ErrMissing)
	}
	cmd := exec.Command(program, "--config-file="+filepath.Join(s.Dir, "config.xml"))
	cmd.Dir = s.Dir
	s.proc, err = start(cmd, filepath.Join(s.Dir, "output.log"))
	return err
}

// wait waits until the server answers.
func (s *Server) wait(ctx context.Context) error {
	return until(ctx, s.proc, func() bool {
		resp, err := http.Get("http://" + s.HTTP + "/ping")
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
}

// PID is the server's process.
func (s *Server) PID() int { return s.proc.cmd.Process.Pid }

// Kill ends the server with SIGKILL, and waits until it is gone.
func (s *Server) Kill() {
	if s.proc != nil {
		s.proc.kill()
	}
}

// Restart starts a server that was killed, on the same ports and data, and waits
// until it answers.
func (s *Server) Restart(ctx context.Context) error {
	s.Kill()
	// The kernel may hold the ports for a moment.
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if err := s.begin(); err != nil {
		return err
	}
	return s.wait(ctx)
}
