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
};
/**
 * Listing 4.7 of the protocol: what was published.
 * @typedef {object} Notification
 * @property {string | null} key The topic; null: from the `broadcast` command.
 * @property {any} broadcast The payload, a JSON value.
 */
/** A queue whose both ends cost the same, however long it is. */
export declare class NotificationQueue {
    #private;
    get length(): number;
    /** @param {Notification} notification */
    push(notification: Notification): void;
    /** @returns {Notification | undefined} The oldest, which is then gone. */
    shift(): Notification | undefined;
}
