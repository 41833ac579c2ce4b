package clickhouse

import (
	"context"
	"crypto/x509"
	"errors"
	"net"
	"strings"

	"github.com/slowray/slowray/internal/fleet/gateway"
)

// Advice says in one line what to do about an error of this package, as far as it tells;
// empty where it does not.
func Advice(err error) string {
	if err == nil {
		return ""
	}
	var of *serverError
	if errors.As(err, &of) {
		switch of.code {
		case codeUnknownTable, codeUnknownDatabase:
			return "make the tables with slowray fleet init and this URL"
		case 10, 16, 47: // no such column
			return "the tables are of another version of slowray: slowray fleet init adds what is new"
		case 192, 193, 194, 516:
			return "name the user in the URL, and give the password by password-file=FILE or $SLOWRAY_CLICKHOUSE_PASSWORD"
		case 164, 195, 497:
			return "the user may not do that: fleet why, top and page need SELECT, record --to INSERT and SELECT, fleet init CREATE and ALTER"
		case codeNoShard, codeNetwork, codeTimeout:
			return "that server does not reach another one: see that all of its remote_servers run, and are named there as it reaches them"
		case 0:
			if strings.Contains(of.text, gateway.NotMine) {
				return "slowray fleet gateway must be given the servers of this URL by its own --to"
			}
			if of.status >= 300 && of.status < 500 {
				return "that is not ClickHouse's HTTP interface, which is on port 8123, with TLS on 8443"
			}
		}
		return ""
	}
	var unknown x509.UnknownAuthorityError
	var name x509.HostnameError
	var dns *net.DNSError
	switch {
	case errors.As(err, &unknown), errors.As(err, &name):
		return "the certificate must be of a name in the URL, and of an authority that this host trusts ($SSL_CERT_FILE names others)"
	case strings.Contains(err.Error(), "proxyconnect"):
		return "the gateway (or the proxy of $HTTP_PROXY) is not reached: see whether slowray fleet gateway runs there"
	case errors.As(err, &dns):
		return "check the host in the URL, and the names that this machine knows"
	case notBegun(err):
		return "no server is reached: see that it runs, and that the port is that of HTTP (8123, with secure=1 8443)"
	case errors.Is(err, context.DeadlineExceeded):
		return "it did not answer in time"
	case strings.Contains(err.Error(), "HTTP response to HTTPS client"):
		return "leave out secure=1, or give the port of TLS"
	case strings.Contains(err.Error(), "malformed HTTP response"), strings.HasSuffix(err.Error(), ": EOF"):
		return "that is not ClickHouse's HTTP interface, which is on port 8123; with TLS, on 8443, say secure=1"
	}
	return ""
}
