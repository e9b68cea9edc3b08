/**
 * Notifications that wait for the program.
 *
 * Owns: the order and the number of these notifications. Must never: drop a notification. The inbox enforces the limit.
 */
export type Notification = {
    /**
     * The topic, or null for a message of the `broadcast` command.
     */
    key: string | null;
    /**
     * The payload, a JSON value.
     */
    broadcast: any;
    /**
     * The number of earlier messages that bounds left out because this message replaces them
     * (SPEC section 2.8).
     */
    skipped: number;
    /**
     * The message's permanent name. The endpoint gives it to a client that recovers, and with each
     * retained message.
     */
    mid?: string;
    /**
     * true for a retained message that the client had missed, or requested.
     */
    kept?: boolean;
};
/**
 * Listing 4.7 of the protocol: a published message.
 * @typedef {object} Notification
 * @property {string | null} key The topic, or null for a message of the `broadcast` command.
 * @property {any} broadcast The payload, a JSON value.
 * @property {number} skipped The number of earlier messages that bounds left out because this message replaces them
 *   (SPEC section 2.8).
 * @property {string} [mid] The message's permanent name. The endpoint gives it to a client that recovers, and with each
 *   retained message.
 * @property {boolean} [kept] true for a retained message that the client had missed, or requested.
 */
/** A queue that adds and removes at the same cost, at any length. */
export declare class NotificationQueue {
    #private;
    get length(): number;
    /** Number of notifications ever added. */
    get pushed(): number;
    /** Number of notifications removed. */
    get taken(): number;
    /** @param {Notification} notification */
    push(notification: Notification): void;
    /** @returns {Notification | undefined} The oldest notification, which is removed from the queue. */
    shift(): Notification | undefined;
}
