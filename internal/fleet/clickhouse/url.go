package clickhouse

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/slowray/slowray/internal/fleet/gateway"
)

// Dialect is what a ClickHouse understands.
type Dialect string

// The dialects.
const (
	Auto   Dialect = "auto"   // as the version of the server tells
	Modern Dialect = "modern" // 23.8 and later: codecs, LowCardinality, TTL, DateTime64
	Plain  Dialect = "plain"  // from 18.16 on: none of these
)

// Scheme is what the URL of a ClickHouse begins with.
const Scheme = "clickhouse://"

// Environment variables that a password or a token is taken from when the URL names
// no file of it.
const (
	PasswordEnv = "SLOWRAY_CLICKHOUSE_PASSWORD"
	TokenEnv    = "SLOWRAY_CLICKHOUSE_TOKEN"
)

// Config is where a ClickHouse is, and how to speak with it.
type Config struct {
	Shards   [][]string // host:port of each replica of each shard
	Database string
	Cluster  string // as the servers' remote_servers call all shards; needed for more than one
	User     string
	Secure   bool // HTTPS
	Compress bool // LZ4
	Dialect  Dialect
	Linger   time.Duration // how long seconds wait for others; requests too, where that is more than they do anyway
	Gateways []string      // host:port of those that put the batches of hosts together; the first that is reached is used

	password, token string // never printed
}

const (
	// defaultLinger makes one batch of two or three seconds: a server pays for a
	// batch, whatever is in it (docs/fleet-gateway.md).
	defaultLinger = 2 * time.Second
	maxLinger     = time.Minute
)

var (
	plainName   = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,63}$`)
	clusterName = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,64}$`)
)

// Parse reads clickhouse://[user@]h1:8123|h1b:8123,h2:8123/database?secure=1&
// password-file=F&token-file=F&cluster=C&dialect=auto|modern|plain&compress=lz4|none&
// linger=2s&gateway=host:8124,host2:8124.
// A comma is between shards, a bar between the replicas of a shard; the port is 8123
// (secure: 8443) where none is given. Without compress it is LZ4, and none where all
// servers are on this machine. Errors never show what may be a password.
func Parse(text string) (*Config, error) {
	rest, ok := strings.CutPrefix(text, Scheme)
	if !ok {
		return nil, errors.New("a URL of ClickHouse begins with " + Scheme)
	}
	rest, query, _ := strings.Cut(rest, "?")
	hosts, database, _ := strings.Cut(rest, "/")
	c := &Config{Database: "slowray", Compress: true, Dialect: Auto, Linger: defaultLinger}
	if at := strings.LastIndexByte(hosts, '@'); at >= 0 {
		user, err := url.PathUnescape(hosts[:at])
		if err != nil || strings.Contains(hosts[:at], ":") {
			return nil, errors.New("a URL takes no password: give password-file=FILE, or set " + PasswordEnv)
		}
		c.User, hosts = user, hosts[at+1:]
	}
	if database = strings.TrimSuffix(database, "/"); database != "" {
		c.Database = database
	}
	if !plainName.MatchString(c.Database) {
		return nil, fmt.Errorf("database %q: letters, digits and _ only", c.Database)
	}
	if err := c.options(query); err != nil {
		return nil, err
	}
	if err := c.servers(hosts); err != nil {
		return nil, err
	}
	if said, _ := url.ParseQuery(query); !said.Has("compress") && len(c.Gateways) == 0 && c.loopback() {
		c.Compress = false // compressing costs more than the loopback device
	}
	if len(c.Shards) > 1 && c.Cluster == "" {
		return nil, errors.New("more than one shard: say with cluster=NAME what the servers call them all in remote_servers")
	}
	return c, nil
}

// options reads what is after the question mark.
func (c *Config) options(query string) error {
	values, err := url.ParseQuery(query)
	if err != nil {
		return errors.New("what follows the ? is malformed")
	}
	c.password, c.token = os.Getenv(PasswordEnv), os.Getenv(TokenEnv)
	for name, all := range values {
		value := all[len(all)-1]
		switch name {
		case "secure":
			switch value {
			case "1", "true":
				c.Secure = true
			case "0", "false", "":
			default:
				return errors.New("secure is 1 or 0")
			}
		case "password-file":
			c.password, err = readSecret(value)
		case "token-file":
			c.token, err = readSecret(value)
		case "cluster":
			if c.Cluster = value; !clusterName.MatchString(value) {
				return fmt.Errorf("cluster %q: letters, digits, _ . and - only", value)
			}
		case "dialect":
			switch c.Dialect = Dialect(value); c.Dialect {
			case Auto, Modern, Plain:
			default:
				return errors.New("dialect is auto, modern or plain")
			}
		case "compress":
			switch value {
			case "lz4":
				c.Compress = true
			case "none":
				c.Compress = false
			default:
				return errors.New("compress is lz4 or none")
			}
		case "linger":
			if c.Linger, err = time.ParseDuration(value); err != nil || c.Linger < 0 || c.Linger > maxLinger {
				return fmt.Errorf("linger %q: must be 0s to 1m", value)
			}
		case "gateway":
			if c.Gateways, err = gatewayAddresses(value); err != nil {
				return err
			}
		case "password", "token":
			return fmt.Errorf("a URL takes no %s: give %s-file=FILE", name, name)
		default:
			return fmt.Errorf("unknown option %q: there are secure, password-file, token-file, cluster, dialect, compress, linger, gateway", name)
		}
		if err != nil {
			return err
		}
	}
	if len(c.Gateways) > 0 && c.Secure {
		return errors.New("gateway and secure=1 do not go together: what goes to a gateway is not encrypted")
	}
	return nil
}

// gatewayAddresses are those of a list with commas.
func gatewayAddresses(text string) (list []string, err error) {
	for one := range strings.SplitSeq(text, ",") {
		address, err := gatewayAddress(one)
		if err != nil {
			return nil, err
		}
		if slices.Contains(list, address) {
			return nil, fmt.Errorf("the gateway %s is named twice", address)
		}
		list = append(list, address)
	}
	return list, nil
}

// gatewayAddress is host:port, 8124 where no port is given.
func gatewayAddress(text string) (string, error) {
	host, port, err := net.SplitHostPort(text)
	if err != nil {
		host, port = strings.Trim(text, "[]"), gateway.DefaultPort
	}
	if host == "" || strings.ContainsAny(host, badInHost) || strings.Trim(port, "0123456789") != "" || port == "" {
		return "", fmt.Errorf("gateway %q is no host:port", text)
	}
	return net.JoinHostPort(host, port), nil
}

// readSecret reads the first line of a file.
func readSecret(file string) (string, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	line, _, _ := strings.Cut(string(b), "\n")
	if line = strings.TrimRight(line, "\r"); line == "" {
		return "", fmt.Errorf("%s: its first line is empty", file)
	}
	return line, nil
}

// badInHost are characters that no name of a server has.
const badInHost = " '\"\\`/?#@"

// servers reads the part with the hosts.
func (c *Config) servers(text string) error {
	seen := map[string]bool{}
	for shard := range strings.SplitSeq(text, ",") {
		var replicas []string
		for address := range strings.SplitSeq(shard, "|") {
			host, port, err := net.SplitHostPort(address)
			if err != nil { // no port
				host, port = strings.Trim(address, "[]"), "8123"
				if c.Secure {
					port = "8443"
				}
			}
			if host == "" || strings.ContainsAny(host, badInHost) || strings.Trim(port, "0123456789") != "" || port == "" {
				return fmt.Errorf("%q is no host:port", address)
			}
			address = net.JoinHostPort(host, port)
			if seen[address] {
				return fmt.Errorf("%s is named twice", address)
			}
			seen[address] = true
			replicas = append(replicas, address)
		}
		c.Shards = append(c.Shards, replicas)
	}
	return nil
}

// loopback says whether all servers are on this machine, as their addresses tell.
func (c *Config) loopback() bool {
	for _, replicas := range c.Shards {
		for _, server := range replicas {
			host, _, _ := net.SplitHostPort(server)
			if addr, err := netip.ParseAddr(host); host != "localhost" && (err != nil || !addr.IsLoopback()) {
				return false
			}
		}
	}
	return true
}

// sharded says whether tables are parts of distributed ones.
func (c *Config) sharded() bool { return len(c.Shards) > 1 }

// replicated says whether some shard has more than one server.
func (c *Config) replicated() bool {
	for _, replicas := range c.Shards {
		if len(replicas) > 1 {
			return true
		}
	}
	return false
}

// local is the table that rows of one shard are in.
func (c *Config) local(table string) string {
	if c.sharded() {
		return table + "_local"
	}
	return table
}
