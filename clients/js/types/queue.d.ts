/**
 * Notifications that wait for the program.
 *
 * Owns: their order and their number. Must never: grow beyond its limit unless told to, or drop one silently.
 */
export type Notification = {
    /**
     * The topic; null: from the `broadcast` command.
     */
    key: string | null;
    /**
     * The payload, a JSON value.
     */
    broadcast: any;
    /**
     * How many earlier messages it stands for, which bounds left out (SPEC section 2.8).
     */
    skipped: number;
    /**
     * The message's permanent name, if the endpoint gives it: to a client that recovers, and with
     * a retained message.
     */
    mid?: string;
    /**
     * true: it is a retained message that the client had missed, or requested.
     */
    kept?: boolean;
};
/**
 * Listing 4.7 of the protocol: a published message.
 * @typedef {object} Notification
 * @property {string | null} key The topic; null: from the `broadcast` command.
 * @property {any} broadcast The payload, a JSON value.
 * @property {number} skipped How many earlier messages it stands for, which bounds left out (SPEC section 2.8).
 * @property {string} [mid] The message's permanent name, if the endpoint gives it: to a client that recovers, and with
 *   a retained message.
 * @property {boolean} [kept] true: it is a retained message that the client had missed, or requested.
 */
/** A queue whose two ends cost the same at any length. */
export declare class NotificationQueue {
    #private;
    get length(): number;
    /** The number ever queued. */
    get pushed(): number;
    /** The number removed. */
    get taken(): number;
    /** @param {Notification} notification */
    push(notification: Notification): void;
    /** @returns {Notification | undefined} The oldest, removed from the queue. */
    shift(): Notification | undefined;
}
