/** Planted MODE SECONDS: as planted.c. */
public class Planted {
	static volatile long sink;

	static void burn_most() {
		long s = 0;
		for (int i = 0; i < 3_000_000; i++) s += i % 7;
		sink = s;
	}

	static void burn_some() {
		long s = 0;
		for (int i = 0; i < 1_000_000; i++) s += i % 7;
		sink = s;
	}

	static void wait_on_db() throws InterruptedException {
		Thread.sleep(20);
	}

	static void handle_request(String mode) throws InterruptedException {
		if (mode.equals("wait")) {
			long began = System.nanoTime();
			wait_on_db();
			System.out.println(System.nanoTime() - began);
		} else {
			burn_most();
			burn_some();
		}
	}

	public static void main(String[] args) throws InterruptedException {
		long end = System.nanoTime() + (long) (1e9 * Double.parseDouble(args[1]));
		while (System.nanoTime() < end) handle_request(args[0]);
	}
}
