package io.skopos.client;

import java.net.InetAddress;
import java.net.UnknownHostException;
import java.util.HashMap;
import java.util.Map;
import java.util.function.LongSupplier;

/**
 * The addresses of candidates: the name itself without a port, one that the user gave, or one that the system's resolver
 * knows for the name. The resolver may block, so this is for a thread that may wait.
 */
public final class Candidates {
    /** The system property with addresses of candidates: {@code n01=10.0.0.1,n02=10.0.0.2}. */
    public static final String PROPERTY = "skopos.candidates";

    /** Time until a name is looked up again, also one that was not found. */
    private static final long LOOK_UP_NANOS = 60_000_000_000L;

    /** The most names that are kept. A profile has far fewer; names come from a file that others write. */
    private static final int MAX_NAMES = 10_000;

    private final Map<String, InetAddress> given;
    private final LongSupplier nanoTime;
    private final Map<String, Found> found = new HashMap<>();

    private static final class Found {
        private final InetAddress address;
        private final long at;

        private Found(InetAddress address, long at) {
            this.address = address;
            this.at = at;
        }
    }

    Candidates(Map<String, InetAddress> given, LongSupplier nanoTime) {
        this.given = given;
        this.nanoTime = nanoTime;
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

    /** Returns the address of a candidate; null if it is not known. */
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
        InetAddress address = resolve(name);
        if (address == null && last != null) {
            // A resolver that fails now does not take away an address that it gave before.
            address = last.address;
        }
        if (found.size() >= MAX_NAMES) {
            found.clear();
        }
        found.put(name, new Found(address, now));
        return address;
    }

    private static InetAddress resolve(String name) {
        // `10.0.0.2:9042` and `n02:9042` have a port; an address of IPv6 has more colons.
        int colon = name.indexOf(':');
        boolean hasPort = colon > 0 && colon == name.lastIndexOf(':');
        try {
            return InetAddress.getByName(hasPort ? name.substring(0, colon) : name);
        } catch (UnknownHostException | SecurityException e) {
            return null;
        }
    }
}
