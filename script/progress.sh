# Sourced by the scripts that wait for something: says on standard error what is
# done, how far it is, and how long it took. On a terminal that is one line, which is
# overwritten and gone at the end; elsewhere a line every five seconds.

# say TEXT: a sentence on standard error, broken at words.
say() { echo "$1" | fold -s -w 79 | sed 's/ *$//' >&2; }

# progress WHAT COMMAND [ARGUMENT ...]: runs the command, which may be a function, and
# shows the last line that it has written to standard error. All that it wrote there
# is printed if it fails; the exit status is its own.
progress() { progress_of '' "$@"; }

# progress_of TOTAL WHAT COMMAND [ARGUMENT ...]: shows how many lines of TOTAL there are.
progress_of() (
	total=$1 what=$2
	shift 2
	began=$(date +%s)
	log=$(mktemp)
	progress_tick &
	tick=$!
	trap 'kill $tick 2>/dev/null || :; rm -f "$log"' EXIT
	trap 'exit 130' INT
	trap 'exit 143' TERM
	status=0
	"$@" 2>"$log" || status=$?
	kill $tick 2>/dev/null || :
	wait $tick 2>/dev/null || :
	[ ! -t 2 ] || printf '\r\033[K' >&2
	took=$(($(date +%s) - began))
	if [ $status -ne 0 ]; then
		# Not the names of packages that were compiled (go build -v).
		grep '[^-A-Za-z0-9_./~]' "$log" >&2 || :
		echo "$what failed after $took s" >&2
	elif [ $took -ge 2 ]; then
		echo "$what took $took s" >&2
	fi
	exit $status
)

# progress_tick says how far it is until it is killed. What it sleeps by may
# outlive it for a moment, and must not keep anybody's pipe open.
progress_tick() {
	every=5
	[ ! -t 2 ] || every=1
	while sleep $every >/dev/null 2>&1; do
		now=$(($(date +%s) - began))
		if [ -n "$total" ]; then
			far="$(wc -l <"$log") of $total"
		else
			far=$(tail -n 1 "$log" | sed 's/\r$//; s/.*\r//')
		fi
		if [ -t 2 ]; then
			printf '\r\033[K%s' "$(echo "$what: $now s  $far" | cut -c -78)" >&2
		else
			echo "$what: $now s  $far" >&2
		fi
	done
}
