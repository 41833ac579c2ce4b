import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.io.InputStream;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.net.URL;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.atomic.AtomicInteger;

/** An HTTP service as people write it in Java, with nothing but its library: a thread for each request in progress. */
public class Booking {
    static final class Account {
        int balance;
    }

    static int workUS, lockUS, transfers, opposite, pool, fixed, garbage, live, hot, own;
    static String ask = "";
    static final Object seats = new Object();
    static int booked;
    static final Account from = new Account(), to = new Account();
    static final AtomicInteger count = new AtomicInteger();
    static final List<Object> kept = new ArrayList<>();
    static volatile Object left;

    public static void main(String[] args) throws IOException {
        for (int n = 2; n + 1 < args.length; n += 2) {
            if (args[n].equals("--ask")) {
                ask = args[n + 1];
                continue;
            }
            int value = Integer.parseInt(args[n + 1]);
            switch (args[n]) {
                case "--work-us" -> workUS = value;
                case "--lock-us" -> lockUS = value;
                case "--transfers" -> transfers = value;
                case "--opposite" -> opposite = value;
                case "--pool" -> pool = value;
                case "--fixed" -> fixed = value;
                case "--garbage" -> garbage = value;
                case "--live" -> live = value;
                case "--hot" -> hot = value;
                case "--own" -> own = value;
                default -> throw new IllegalArgumentException(args[n]);
            }
        }
        for (int n = 0; n < live; n++) {
            kept.add(megabyte());
        }
        if (pool > 0) {
            LinkedBlockingQueue<Runnable> queue = new LinkedBlockingQueue<>();
            for (int n = 0; n < pool; n++) {
                Thread t = new Thread(() -> {
                    try {
                        while (true) queue.take().run();
                    } catch (InterruptedException e) {
                        return;
                    }
                }, "export-" + n);
                t.setDaemon(true);
                t.start();
            }
        }
        if (own > 0) {
            serve(args[0], Integer.parseInt(args[1]));
        }
        HttpServer server = HttpServer.create(new InetSocketAddress(args[0], Integer.parseInt(args[1])), 4096);
        ExecutorService threads = fixed > 0 ? Executors.newFixedThreadPool(fixed) : Executors.newCachedThreadPool();
        server.setExecutor(threads);
        server.createContext("/", Booking::handle);
        server.start();
    }

    /** A server without an executor: threads of its own take connections from a queue. */
    static void serve(String address, int port) throws IOException {
        BlockingQueue<Socket> accepted = new ArrayBlockingQueue<>(4096);
        for (int n = 0; n < own; n++) {
            new Thread(() -> {
                while (true) {
                    try (Socket connection = accepted.take()) {
                        connection.setTcpNoDelay(true);
                        if (connection.getInputStream().read(new byte[8192]) <= 0) continue;
                        work();
                        connection.getOutputStream().write("HTTP/1.1 200 OK\r\nContent-Length: 12\r\nConnection: close\r\n\r\nHello World\n".getBytes());
                    } catch (IOException e) {
                        continue; // it went away
                    } catch (InterruptedException e) {
                        return;
                    }
                }
            }, "fares " + n).start();
        }
        try (ServerSocket listening = new ServerSocket()) {
            listening.setReuseAddress(true);
            listening.bind(new InetSocketAddress(address, port), 4096);
            while (true) accepted.add(listening.accept());
        }
    }

    static void handle(HttpExchange exchange) throws IOException {
        exchange.getRequestBody().readAllBytes();
        work();
        byte[] body = "Hello World\n".getBytes();
        exchange.sendResponseHeaders(200, body.length);
        exchange.getResponseBody().write(body);
        exchange.close();
    }

    static void work() throws IOException {
        if (transfers > 0) {
            int turn = count.incrementAndGet() % transfers;
            if (turn == 0) {
                transfer(from, to);
            } else if (turn == 1) {
                if (opposite > 0) transfer(to, from);
                else transfer(from, to);
            }
        }
        if (lockUS > 0) book();
        if (garbage > 0) quote();
        if (hot > 0) booked = priceOfRoute(hot);
        if (workUS > 0) sleep(workUS);
        if (!ask.isEmpty()) {
            try (InputStream answer = new URL(ask).openStream()) {
                answer.readAllBytes();
            }
        }
    }

    /** Takes a seat, and asks somebody else for it while nobody may take another. */
    static void book() {
        synchronized (seats) {
            booked++;
            sleep(lockUS);
        }
    }

    /** Locks two accounts, in the order in which it is told them. */
    static void transfer(Account first, Account second) {
        synchronized (first) {
            sleep(1000);
            synchronized (second) {
                first.balance--;
                second.balance++;
            }
        }
    }

    /** A megabyte of small objects, as a cache of bookings is: the collector has to go through each of them. */
    static Object megabyte() {
        Object[] bookings = new Object[28_000];
        for (int n = 0; n < bookings.length; n++) bookings[n] = new long[2];
        return bookings;
    }

    /** The hot function: each leg with each other one. */
    static int priceOfRoute(int turns) {
        long total = 0;
        for (int leg = 0; leg < turns; leg++) total += leg * 7919L % 97;
        return (int) total;
    }

    /** Makes what is of no use after it. */
    static void quote() {
        for (int made = 0; made < garbage; made += 4096) left = new byte[4096];
    }

    static void sleep(int us) {
        try {
            Thread.sleep(us / 1000, us % 1000 * 1000);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }
}
