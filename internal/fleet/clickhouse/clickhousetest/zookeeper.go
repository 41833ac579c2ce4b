package clickhousetest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// startZooKeeper starts a ZooKeeper of the jars that script/setup.sh has fetched.
func startZooKeeper(ctx context.Context, dir string) (*process, int, error) {
	jars, err := fromRoot(".zookeeper")
	if err != nil {
		return nil, 0, err
	}
	if found, _ := filepath.Glob(filepath.Join(jars, "zookeeper-3*.jar")); len(found) == 0 {
		return nil, 0, fmt.Errorf("ZooKeeper's jars: %w", ErrMissing)
	}
	java, err := exec.LookPath("java")
	if err != nil {
		return nil, 0, fmt.Errorf("java: %w", ErrMissing)
	}
	ports, err := freePorts(1)
	if err != nil {
		return nil, 0, err
	}
	if err := os.MkdirAll(filepath.Join(dir, "data"), 0o700); err != nil {
		return nil, 0, err
	}
	config := fmt.Sprintf("tickTime=1000\ndataDir=%s/data\nclientPort=%d\nclientPortAddress=127.0.0.1\nadmin.enableServer=false\nmaxClientCnxns=0\n", dir, ports[0])
	file := filepath.Join(dir, "zoo.cfg")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		return nil, 0, err
	}
	cmd := exec.Command(java, "-Xmx128m", "-XX:+UseSerialGC", "-Dzookeeper.jmx.log4j.disable=true", "-cp", jars+"/*", "org.apache.zookeeper.server.quorum.QuorumPeerMain", file)
	cmd.Dir = dir
	p, err := start(cmd, filepath.Join(dir, "output.log"))
	if err != nil {
		return nil, 0, err
	}
	err = until(ctx, p, func() bool { return serves(ports[0]) })
	if err != nil {
		p.kill()
		return nil, 0, err
	}
	return p, ports[0], nil
}

// serves asks a ZooKeeper for its state: its port is open before it serves.
func serves(port int) bool {
	c, err := net.DialTimeout("tcp", fmt.Sprintf("127.0.0.1:%d", port), time.Second)
	if err != nil {
		return false
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(time.Second))
	fmt.Fprint(c, "srvr")
	answer, _ := io.ReadAll(c)
	return bytes.Contains(answer, []byte("Mode:"))
}
