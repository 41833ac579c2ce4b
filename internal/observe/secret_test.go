package observe

import (
	"strings"
	"testing"
	"time"

	"github.com/slowray/slowray/internal/budget/budgettest"
)

// Arguments are written with a bar between them.
func TestCommandLine(t *testing.T) {
	for _, c := range [][2]string{
		// What is hidden.
		{"app|--password=S|-x", "app --password=*** -x"},
		{"app|--password|S T|-x", "app --password *** -x"},
		{"app|--password=S T", "app --password=***"},
		{"app|--DB-PASSWD|S", "app --DB-PASSWD ***"},
		{"app|-password|S", "app -password ***"},
		{"app|--token|S|--port|80", "app --token *** --port 80"},
		{"app|--github-token=S|--secret|S", "app --github-token=*** --secret ***"},
		{"app|--api-key=S|--apiKey=S|--api_key|S", "app --api-key=*** --apiKey=*** --api_key ***"},
		{"app|--auth|S|--access-key|S|--credential=S", "app --auth *** --access-key *** --credential=***"},
		{"java|-Xmx4g|-Dspring.datasource.password=S|-Djavax.net.ssl.keyStorePassword=S|-jar|a.jar", "java -Xmx4g -Dspring.datasource.password=*** -Djavax.net.ssl.keyStorePassword=*** -jar a.jar"},
		{"redis-server|--requirepass|S|--masterauth|S|--port|6379", "redis-server --requirepass *** --masterauth *** --port 6379"},
		{"redis-cli|-h|mysql|-a|S|-p|6379", "redis-cli -h mysql -a *** -p 6379"},
		{"/usr/bin/mysql|-uroot|-pS|db", "/usr/bin/mysql -uroot -p*** db"},
		{"mariadb-dump|-p|db", "mariadb-dump -p db"},
		{"sshpass|-p|S|ssh|h", "sshpass -p *** ssh h"},
		{"sshpass|-pS|ssh|h", "sshpass -p*** ssh h"},
		{"mongosh|-u|u|-p|S", "mongosh -u u -p ***"},
		{"ldapsearch|-x|-w|S|-b|dc=x", "ldapsearch -x -w *** -b dc=x"},
		{"sh|-c|mysqldump -u root -pS db | gzip -9 > /b.gz", "sh -c mysqldump -u root -p*** db | gzip -9 > /b.gz"},
		{"sh|-c|MYSQL_PWD=S mysql db", "sh -c MYSQL_PWD=*** mysql db"},
		{"sh|-c|app --password 'S T U' --port 80", "sh -c app --password '***' --port 80"},
		{"sh|-c|app --password='S T' --port 80", "sh -c app --password='***' --port 80"},
		{"env|MYSQL_PWD=S|AWS_SECRET_ACCESS_KEY=S|AWS_ACCESS_KEY_ID=S|PORT=80|app", "env MYSQL_PWD=*** AWS_SECRET_ACCESS_KEY=*** AWS_ACCESS_KEY_ID=*** PORT=80 app"},
		{"docker|run|-e|DB_PASSWORD=S,S&S|--env=TOKEN=S|img", "docker run -e DB_PASSWORD=*** --env=TOKEN=*** img"},
		{"app|redis://u:S@h:6379/0", "app redis://u:***@h:6379/0"},
		{"app|redis://:S@h/|redis://:a/S@h/", "app redis://:***@h/ redis://:***@h/"},
		{"app|postgres://u:a@S@h/db?sslmode=off&password=S&x=1", "app postgres://u:***@h/db?sslmode=off&password=***&x=1"},
		{"app|--url=mongodb://u:S,S@h1:1,h2:2/db", "app --url=mongodb://u:***@h1:1,h2:2/db"},
		{"app|http://a:80,http://u:S@b/", "app http://a:80,http://u:***@b/"},
		{"git|clone|https://S@github.com/a/b", "git clone https://***@github.com/a/b"},
		{"app|jdbc:mysql://h:1/db?user=a&password=S", "app jdbc:mysql://h:1/db?user=a&password=***"},
		{"app|-dsn|u:S@tcp(h:3306)/db|-x", "app -dsn u:***@tcp(h:3306)/db -x"},
		{"app|host=h password=S dbname=d", "app host=h password=*** dbname=d"},
		{"app|password=S dbname=d", "app password=*** dbname=d"},
		{"app|Server=h;Password=S;Database=d", "app Server=h;Password=***;Database=d"},
		{`app|{"user":"u","password":"S","n":1}`, `app {"user":"u","password":"***","n":1}`},
		{`app|{"user": "u", "password": "S T", "n": 1}`, `app {"user": "u", "password": "***", "n": 1}`},
		{"curl|-u|me:S|-H|Authorization: Bearer S|http://h/", "curl -u me:*** -H Authorization: Bearer *** http://h/"},
		{"curl|--user=me:S|-ume:S|--header=X-Api-Key: S|-H|X-Auth-Token:S", "curl --user=me:*** -ume:*** --header=X-Api-Key: *** -H X-Auth-Token:***"},
		{"app|Authorization:|Basic|S|x", "app Authorization: Basic *** x"},
		{"app|Bearer|S", "app Bearer ***"},
		{"app|Basic|dTpT", "app Basic ***"},
		{"curl|-H|Cookie: session=S", "curl -H Cookie: ***"},
		{"beam.smp|-setcookie|S|-name|r@h", "beam.smp -setcookie *** -name r@h"},
		{"openssl|-passin|pass:S", "openssl -passin ***"},
		// What stays.
		{"", ""},
		{"java|-Xmx4g|-Xms4g|-XX:MaxDirectMemorySize=1g|-javaagent:/a/b.jar=port=1|-jar|a.jar", "java -Xmx4g -Xms4g -XX:MaxDirectMemorySize=1g -javaagent:/a/b.jar=port=1 -jar a.jar"},
		{"nginx: master process nginx -p /prefix -c /etc/token/nginx.conf", "nginx: master process nginx -p /prefix -c /etc/token/nginx.conf"},
		{"redis-server|*:6379|-p|6379", "redis-server *:6379 -p 6379"},
		{"gunicorn|--workers|4|-w4|--bind|unix:/run/secrets/a.sock|app:auth", "gunicorn --workers 4 -w4 --bind unix:/run/secrets/a.sock app:auth"},
		{"vllm|--max-tokens|4096|--max-num-batched-tokens=8192|--token-bucket|9", "vllm --max-tokens 4096 --max-num-batched-tokens=8192 --token-bucket 9"},
		{"mysqld|--port=3306|-P|3307|--defaults-file=/etc/my.cnf|--max-connections=100", "mysqld --port=3306 -P 3307 --defaults-file=/etc/my.cnf --max-connections=100"},
		{"mysql|-P3306|-h|h|--port|3306", "mysql -P3306 -h h --port 3306"},
		{"app|--password-file=/run/secrets/p|--token-ttl|60|--auth-mode=ldap", "app --password-file=/run/secrets/p --token-ttl 60 --auth-mode=ldap"},
		{"mongod|--auth|--dbpath|/db|--no-auth|x|--enable-auth=true", "mongod --auth --dbpath /db --no-auth x --enable-auth=true"},
		{"env|PWD=/srv|app|http://h:80/a@b|ssh://git@h/x|http://[::1]:80/a@b", "env PWD=/srv app http://h:80/a@b ssh://git@h/x http://[::1]:80/a@b"},
		{"docker|-v|/run/secrets:/run/secrets|-p|80:80|-u|1000:1000|--network|host", "docker -v /run/secrets:/run/secrets -p 80:80 -u 1000:1000 --network host"},
		{"haproxy|-f|/etc/haproxy.cfg|-p|/run/haproxy.pid|-x|/run/auth.sock", "haproxy -f /etc/haproxy.cfg -p /run/haproxy.pid -x /run/auth.sock"},
		{"python|-m|basic|training", "python -m basic training"},
		{"postgres: alice keys 10.0.0.1(5000) authentication", "postgres: alice keys 10.0.0.1(5000) authentication"},
		{"node|--max-old-space-size=4096|/srv/keys.js", "node --max-old-space-size=4096 /srv/keys.js"},
	} {
		line := strings.ReplaceAll(strings.ReplaceAll(c[0], " | ", "\x01"), "|", "\x00")
		line = strings.ReplaceAll(line, "\x01", " | ")
		got := CommandLine(line)
		if got != c[1] {
			t.Errorf("%q\n is %q\nnot %q", c[0], got, c[1])
		}
		if again := CommandLine(got); len(again) > len(got)+32 {
			t.Errorf("%q is %q the second time", got, again)
		}
	}
}

// FuzzCommandLine hides a secret wherever a known name stands before it, and takes
// no longer the stranger the rest is.
func FuzzCommandLine(f *testing.F) {
	f.Add("sh\x00-c\x00mysql -p'a b' \"x", "curl\x00-H")
	f.Add("http://a:b@c://d:e@f,&;\\\"'", `{"password":"`)
	f.Fuzz(func(t *testing.T, before, after string) {
		const injected = "zQ7injected7Qz"
		if strings.Contains(before+after, injected) {
			return
		}
		line := before + "\x00--password=" + injected + "\x00" + after + "\x00DB_TOKEN=" + injected
		budgettest.Within(t, len(line), budgettest.Cost{PerByte: 2048, Fixed: 4 << 20, CPU: time.Second}, func() {
			if got := CommandLine(line); strings.Contains(got, injected) || len(got) > 4*len(line) {
				t.Errorf("%q is %q", line, got)
			}
		})
	})
}
