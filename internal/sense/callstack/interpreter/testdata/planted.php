<?php
// planted.php MODE SECONDS: as planted.c.
function burn($n) { $s = 0; for ($i = 0; $i < $n; $i++) $s += $i; return $s; }
function burn_most() { return burn(300000); }
function burn_some() { return burn(100000); }
function wait_on_db() { usleep(20000); }
function handle_request($mode) {
	if ($mode === "wait") {
		$began = hrtime(true);
		wait_on_db();
		echo hrtime(true) - $began, "\n";
	} else {
		burn_most();
		burn_some();
	}
}
$end = microtime(true) + (float)$argv[2];
while (microtime(true) < $end) handle_request($argv[1]);
