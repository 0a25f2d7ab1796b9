package io.skopos.client;

/** The reason why a file is not read as a segment. */
final class Refused extends Exception {
    private static final long serialVersionUID = 1;

    Refused(String reason) {
        super(reason);
    }
}
