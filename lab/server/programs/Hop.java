import java.io.*;
import java.net.*;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.*;
import java.util.*;
import java.util.concurrent.*;
import java.util.concurrent.atomic.AtomicLong;

/** One of a chain of small HTTP services: it does something, asks the next, answers. */
class Hop {
    static final Map<String, String> are = new HashMap<>();
    static final AtomicLong count = new AtomicLong();
    static final Object stock = new Object(), ticket = new Object();
    static final ThreadLocal<Socket> next = new ThreadLocal<>();

    static long number(String name) { return Long.parseLong(are.getOrDefault("--" + name, "0")); }

    static long tariff(long us) {
        var threads = java.lang.management.ManagementFactory.getThreadMXBean();
        long end = threads.getCurrentThreadCpuTime() + us * 1000, total = 0;
        while (threads.getCurrentThreadCpuTime() < end) for (int n = 0; n < 20000; n++) total = (total * 31 + n) % 1000003;
        return total;
    }

    static void reserve() throws InterruptedException {
        synchronized (stock) { Thread.sleep(number("lock-us") / 1000, (int) (number("lock-us") % 1000 * 1000)); }
    }

    static void awaitSupplier() throws InterruptedException { Thread.sleep(number("sleep-us") / 1000); }

    static void takeTicket() throws IOException {
        synchronized (ticket) { // a file lock of Java belongs to the whole process
            try (var file = FileChannel.open(Path.of(are.get("--flock")), StandardOpenOption.WRITE, StandardOpenOption.CREATE)) { file.lock().release(); }
        }
    }

    /** Reads a message up to and with its head, and the 3 bytes of a body if there is one; null at the end. */
    static String head(InputStream in, boolean body) throws IOException {
        var text = new StringBuilder();
        for (int c; (c = in.read()) >= 0; ) {
            text.append((char) c);
            if (c == '\n' && text.length() > 3 && text.charAt(text.length() - 3) == '\n') {
                if (body) in.readNBytes(length(text.toString()));
                return text.toString();
            }
        }
        return null;
    }

    static int length(String head) {
        for (String line : head.toLowerCase().split("\r\n")) if (line.startsWith("content-length:")) return Integer.parseInt(line.substring(15).trim());
        return 0;
    }

    static int askNext() throws IOException {
        String[] at = are.get("--next").split(":");
        for (int turn = 0; turn < 2; turn++) {
            Socket to = next.get();
            boolean fresh = to == null;
            try {
                if (fresh) {
                    to = new Socket();
                    to.setTcpNoDelay(true);
                    to.setSoTimeout((int) Math.max(number("timeout-ms"), 0) == 0 ? 10000 : (int) number("timeout-ms"));
                    to.connect(new InetSocketAddress(at[0], Integer.parseInt(at[1])), 10000);
                    next.set(to);
                }
                to.getOutputStream().write(("GET / HTTP/1.1\r\nHost: " + at[0] + "\r\n\r\n").getBytes(StandardCharsets.US_ASCII));
                String said = head(new BufferedInputStream(to.getInputStream(), 1024), true);
                if (said == null) throw new EOFException();
                if (said.toLowerCase().contains("connection: close")) { to.close(); next.remove(); }
                return Integer.parseInt(said.substring(9, 12));
            } catch (IOException problem) {
                if (to != null) to.close();
                next.remove();
                if (fresh || problem instanceof SocketTimeoutException) return 502;
            }
        }
        return 502;
    }

    static int answer() {
        try {
            if (count.incrementAndGet() % Math.max(1, number("every")) == 0) {
                if (number("sleep-us") > 0) awaitSupplier();
                if (number("spin-us") > 0) tariff(number("spin-us"));
                if (number("lock-us") > 0) reserve();
            }
            if (are.containsKey("--flock")) takeTicket();
            if (are.containsKey("--read")) Files.readAllBytes(Path.of(are.get("--read")));
            if (number("log") > 0) System.out.println("x".repeat((int) number("log")));
            return are.containsKey("--next") ? askNext() : 200;
        } catch (IOException | InterruptedException problem) {
            return 500;
        }
    }

    static void serve(Socket conn, boolean keep) {
        try (conn) {
            conn.setTcpNoDelay(true);
            var in = new BufferedInputStream(conn.getInputStream());
            for (String head; (head = head(in, false)) != null; ) {
                boolean stays = keep && !head.toLowerCase().contains("connection: close");
                int status = answer();
                conn.getOutputStream().write(("HTTP/1.1 " + status + (status < 400 ? " OK" : " Error") + "\r\nContent-Length: 3\r\nConnection: " + (stays ? "keep-alive" : "close") + "\r\n\r\n" + (status < 400 ? "ok\n" : "no\n")).getBytes(StandardCharsets.US_ASCII));
                if (!stays) return;
            }
        } catch (IOException gone) {
        }
    }

    public static void main(String[] args) throws IOException {
        for (int n = 2; n < args.length; n += 2) are.put(args[n], args[n + 1]);
        int workers = (int) number("workers"), backlog = number("backlog") > 0 ? (int) number("backlog") : 1024;
        ExecutorService pool = workers > 0 ? Executors.newFixedThreadPool(workers) : Executors.newCachedThreadPool();
        try (var listener = new ServerSocket(Integer.parseInt(args[1]), backlog, InetAddress.getByName(args[0]))) {
            while (true) {
                try {
                    Socket conn = listener.accept();
                    pool.execute(() -> serve(conn, workers == 0));
                } catch (IOException problem) {
                    System.err.println(problem);
                }
            }
        }
    }
}
