/**
 * Notifications that wait for the program.
 *
 * Owns: their order and their number. Must never: grow beyond its limit unless told to, or drop one without saying so.
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
     * What names the message for good, where the endpoint says it: for a client that recovers, and
     * with a kept message.
     */
    mid?: string;
    /**
     * true: it comes from what was kept, since it had been missed, or was asked for.
     */
    kept?: boolean;
};
/**
 * Listing 4.7 of the protocol: what was published.
 * @typedef {object} Notification
 * @property {string | null} key The topic; null: from the `broadcast` command.
 * @property {any} broadcast The payload, a JSON value.
 * @property {string} [mid] What names the message for good, where the endpoint says it: for a client that recovers, and
 *   with a kept message.
 * @property {boolean} [kept] true: it comes from what was kept, since it had been missed, or was asked for.
 */
/** A queue whose both ends cost the same, however long it is. */
export declare class NotificationQueue {
    #private;
    get length(): number;
    /** How many there have been. */
    get pushed(): number;
    /** How many of them are gone. */
    get taken(): number;
    /** @param {Notification} notification */
    push(notification: Notification): void;
    /** @returns {Notification | undefined} The oldest, which is then gone. */
    shift(): Notification | undefined;
}
