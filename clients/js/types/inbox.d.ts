/**
 * Input for the program: notifications, gaps and positions, each handed over in its turn. SPEC section 9.
 *
 * Owns: the queue, its limit, the iteration, and which handler is at work. Must never: know a connection, hand over a
 * later item before the program has processed the earlier ones, or drop a notification without counting and reporting
 * it.
 */
import type { Credit } from "./credit.js";
import type { ClientOptions } from "./options.js";
import type { Notification } from "./queue.js";
import type { Mark, Recovery } from "./recovery.js";
export type Receiver = {
    /**
     * The error that ended the client.
     */
    ended: () => Error | null;
    /**
     * No more handovers: the program closed the client, or a handler has failed.
     */
    isOver: () => boolean;
    /**
     * Call a handler: an error that it throws ends the client.
     */
    tell: (call: () => void) => void;
    /**
     * Report that a handler has failed.
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
/** @import { Credit } from "./credit.js" */
/** @import { ClientOptions } from "./options.js" */
/** @import { Notification } from "./queue.js" */
/** @import { Lacking, Mark, Recovery } from "./recovery.js" */
/**
 * @typedef {object} Receiver What its client provides.
 * @property {() => Error | null} ended The error that ended the client.
 * @property {() => boolean} isOver No more handovers: the program closed the client, or a handler has failed.
 * @property {(call: () => void) => void} tell Call a handler: an error that it throws ends the client.
 * @property {(error: unknown) => void} fail Report that a handler has failed.
 * @property {() => void} goOn Read again, if reading has stopped.
 * @property {(signal: AbortSignal) => AsyncIterable<string>} topics The client's own, some perhaps twice.
 */
/** @typedef {Pick<ClientOptions, "onNotification" | "onDropped" | "onGap">} Handlers */
/** The inbox of one client. */
export declare class Inbox {
    #private;
    /** Notifications dropped because the queue was full. */
    dropped: number;
    /**
     * @param {Handlers & { queueMax: number, overflow: "drop_oldest" | "pause" }} options
     * @param {Recovery | null} recovery
     * @param {Credit | null} credit
     * @param {Receiver} receiver
     */
    constructor(options: Handlers & {
        queueMax: number;
        overflow: "drop_oldest" | "pause";
    }, recovery: Recovery | null, credit: Credit | null, receiver: Receiver);
    /** Notifications that wait. */
    get length(): number;
    /** Whether reading should stop for now. */
    get isFull(): boolean;
    /** Reading stops, so no reply can arrive that the inbox waits for. */
    paused(): void;
    /** The client has ended: wake the iteration. */
    ended(): void;
    /** @param {Notification} notification */
    put(notification: Notification): void;
    /**
     * Report or reach this when the program has processed everything before it.
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
