package io.skopos.client;

import java.net.InetAddress;
import java.net.UnknownHostException;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Function;
import java.util.function.LongSupplier;
import java.util.regex.Pattern;

/**
 * The addresses of candidates. An address is the name itself without a port, or the user gives it, or the system's resolver
 * knows it for the name.
 *
 * <p>The resolver may block. A thread that may wait calls {@link #addressOf}. A thread that must not wait calls
 * {@link #known}, while another thread calls {@link #lookUp} again and again.
 */
public final class Candidates {
    /** The system property with addresses of candidates: {@code n01=10.0.0.1,n02=10.0.0.2}. */
    public static final String PROPERTY = "skopos.candidates";

    /** Time until a name is looked up again, also one that was not found. */
    private static final long LOOK_UP_NANOS = 60_000_000_000L;

    /** The most names that are kept. A profile has far fewer; names come from a file that others write. */
    private static final int MAX_NAMES = 10_000;

    /** A number of an address of IPv4. A text that only looks like one would be asked of the resolver. */
    private static final String OCTET = "(25[0-5]|2[0-4]\\d|1\\d\\d|\\d{1,2})";
    private static final Pattern IPV4 = Pattern.compile(OCTET + "(\\." + OCTET + "){3}");

    private final Map<String, InetAddress> given;
    private final LongSupplier nanoTime;
    private final Function<String, InetAddress> resolver;
    private final Map<String, Found> found = new ConcurrentHashMap<>();
    /** Names that {@link #known} was asked for since they were looked up. */
    private final Set<String> asked = ConcurrentHashMap.newKeySet();

    /** The last look-up of a name, in the order in which names are looked up. */
    private enum Outcome { PENDING, FOUND, FAILED }

    private static final class Found {
        private final InetAddress address;
        private final long at;
        private final Outcome outcome;

        private Found(InetAddress address, long at, Outcome outcome) {
            this.address = address;
            this.at = at;
            this.outcome = outcome;
        }
    }

    Candidates(Map<String, InetAddress> given, LongSupplier nanoTime) {
        this(given, nanoTime, Candidates::resolve);
    }

    /** Makes candidates with another resolver, which returns null for a name that it does not know. */
    Candidates(Map<String, InetAddress> given, LongSupplier nanoTime, Function<String, InetAddress> resolver) {
        this.given = given;
        this.nanoTime = nanoTime;
        this.resolver = resolver;
    }

    /** Takes the addresses that {@link #PROPERTY} gives; an entry without a valid address is left out. */
    public static Candidates ofProperties() {
        Map<String, InetAddress> given = new HashMap<>();
        for (String entry : System.getProperty(PROPERTY, "").split(",")) {
            int equals = entry.indexOf('=');
            InetAddress address = equals > 0 ? resolve(entry.substring(equals + 1).trim()) : null;
            if (address != null) {
                given.put(entry.substring(0, equals).trim(), address);
            }
        }
        return new Candidates(given, System::nanoTime);
    }

    /**
     * Returns the address of a candidate without waiting; null if the address is not known, or not before the next
     * {@link #lookUp}.
     */
    public InetAddress known(String name) {
        if (given.containsKey(name) || isAddress(hostOf(name))) {
            return addressOf(name);
        }
        Found last = found.get(name);
        if (last == null) {
            last = new Found(null, nanoTime.getAsLong() - LOOK_UP_NANOS, Outcome.PENDING);
            keep(name, last);
        }
        asked.add(name);
        return last.address;
    }

    /**
     * Looks up each name that {@link #known} was asked for and that was not looked up for a minute. It waits for the resolver
     * each time. Names that were never looked up go first, also those that come meanwhile, and names whose last look-up failed
     * go last: each of these may hold up the others for seconds. A name that left the rank keeps the address that it had.
     */
    public void lookUp() {
        Set<String> done = new HashSet<>();
        for (String name = next(done); name != null; name = next(done)) {
            done.add(name);
            asked.remove(name);
            addressOf(name);
        }
    }

    /** Returns the name that is looked up next; null if all names that are due are in {@code done}. */
    private String next(Set<String> done) {
        long now = nanoTime.getAsLong();
        String next = null;
        Outcome first = null;
        for (Map.Entry<String, Found> entry : found.entrySet()) {
            String name = entry.getKey();
            boolean isDue = now - entry.getValue().at >= LOOK_UP_NANOS && asked.contains(name) && !done.contains(name);
            Outcome outcome = entry.getValue().outcome;
            if (isDue && (first == null || outcome.compareTo(first) < 0)) {
                next = name;
                first = outcome;
            }
        }
        return next;
    }

    /** Returns the address of a candidate; null if it is not known. It may wait for the resolver. */
    public InetAddress addressOf(String name) {
        InetAddress fixed = given.get(name);
        if (fixed != null) {
            return fixed;
        }
        long now = nanoTime.getAsLong();
        Found last = found.get(name);
        if (last != null && now - last.at < LOOK_UP_NANOS) {
            return last.address;
        }
        // Java asks no resolver for an address.
        InetAddress address = isAddress(hostOf(name)) ? resolve(name) : resolver.apply(name);
        Outcome outcome = address == null ? Outcome.FAILED : Outcome.FOUND;
        if (address == null && last != null) {
            // A resolver that fails now does not take away an address that it gave before.
            address = last.address;
        }
        keep(name, new Found(address, now, outcome));
        return address;
    }

    private void keep(String name, Found address) {
        if (found.size() >= MAX_NAMES) {
            found.clear();
            asked.clear();
        }
        found.put(name, address);
    }

    /** Returns a name without its port. */
    private static String hostOf(String name) {
        // `10.0.0.2:9042` and `n02:9042` have a port; an address of IPv6 has more colons.
        int colon = name.indexOf(':');
        boolean hasPort = colon > 0 && colon == name.lastIndexOf(':');
        return hasPort ? name.substring(0, colon) : name;
    }

    /** Returns true for an address, for which Java asks no resolver. */
    private static boolean isAddress(String host) {
        boolean isIpv6 = host.indexOf(':') >= 0 && (host.charAt(0) == ':' || Character.digit(host.charAt(0), 16) >= 0);
        return isIpv6 || IPV4.matcher(host).matches();
    }

    private static InetAddress resolve(String name) {
        try {
            return InetAddress.getByName(hostOf(name));
        } catch (UnknownHostException | SecurityException e) {
            return null;
        }
    }
}
