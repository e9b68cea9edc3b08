/**
 * What has come for the program: notifications, gaps and positions, each handed over in its turn. SPEC section 9.
 *
 * Owns: the queue, its limit, the iteration, and which handler is at work. Must never: know a connection, hand over what
 * comes later before what comes first is processed, or drop a notification without counting and telling it.
 */
import type { ClientOptions } from "./options.js";
import type { Notification } from "./queue.js";
import type { Mark, Recovery } from "./recovery.js";
export type Receiver = {
    /**
     * What ended the client.
     */
    ended: () => Error | null;
    /**
     * Nothing is handed over any more: the program closed it, or a handler has failed.
     */
    isOver: () => boolean;
    /**
     * Call a handler: what it throws ends the client.
     */
    tell: (call: () => void) => void;
    /**
     * A handler has failed.
     */
    fail: (error: unknown) => void;
    /**
     * Read again, if reading has stopped.
     */
    goOn: () => void;
    /**
     * The client's own, some perhaps twice.
     */
    topics: (signal: AbortSignal) => AsyncIterable<string>;
};
export type Handlers = Pick<ClientOptions, "onNotification" | "onDropped" | "onGap">;
/** @import { ClientOptions } from "./options.js" */
/** @import { Notification } from "./queue.js" */
/** @import { Lacking, Mark, Recovery } from "./recovery.js" */
/**
 * @typedef {object} Receiver What its client does for it.
 * @property {() => Error | null} ended What ended the client.
 * @property {() => boolean} isOver Nothing is handed over any more: the program closed it, or a handler has failed.
 * @property {(call: () => void) => void} tell Call a handler: what it throws ends the client.
 * @property {(error: unknown) => void} fail A handler has failed.
 * @property {() => void} goOn Read again, if reading has stopped.
 * @property {(signal: AbortSignal) => AsyncIterable<string>} topics The client's own, some perhaps twice.
 */
/** @typedef {Pick<ClientOptions, "onNotification" | "onDropped" | "onGap">} Handlers */
/** One client's. */
export declare class Inbox {
    #private;
    /** Notifications dropped because the queue was full. */
    dropped: number;
    /**
     * @param {Handlers & { queueMax: number, overflow: "drop_oldest" | "pause" }} options
     * @param {Recovery | null} recovery
     * @param {Receiver} receiver
     */
    constructor(options: Handlers & {
        queueMax: number;
        overflow: "drop_oldest" | "pause";
    }, recovery: Recovery | null, receiver: Receiver);
    /** Notifications that wait. */
    get length(): number;
    /** No more should be read now. */
    get isFull(): boolean;
    /** Reading stops, so no reply comes that something here waits for. */
    paused(): void;
    /** The client has ended: whoever iterates has to know. */
    ended(): void;
    /** @param {Notification} notification */
    put(notification: Notification): void;
    /**
     * To be told, or reached, when the program has processed what came before.
     * @param {Omit<Mark, "after">} mark
     */
    mark(mark: Omit<Mark, "after">): void;
    /**
     * As `Client.notifications`.
     * @param {AbortSignal | undefined} signal
     * @returns {AsyncGenerator<Notification, void, void>}
     */
    notifications(signal: AbortSignal | undefined): AsyncGenerator<Notification, void, void>;
}
