/**
 * How a client gets the messages that it has missed, and learns of gaps. SPEC sections 8.10 and 9.
 *
 * Owns: the position, where it is saved, the messages already received, and the gaps to report, each at its place among
 * the notifications. Must never: know a connection, or call the program's handlers.
 *
 * A position covers everything that came before it. A position is *received* when it arrives. It is *reached* when the
 * program has processed everything before it. The client saves only reached positions.
 */
/**
 * The client notices repetitions of this many of the latest messages. Only messages that are on their way at the moment
 * of a failure can arrive twice.
 */
export declare const MIDS_MAX = 10000;
/** Maximum number of topics that a gap names. With more, it reports "any topic". */
export declare const GAP_TOPICS_MAX = 10000;
export type Saving = Pick<Storage, "getItem" | "setItem">;
export type Gap = {
    /**
     * Topics of this client. null: any of its topics.
     */
    topics: string[] | null;
};
export type Lacking = {
    topics: Set<string>;
    slots: Set<number>;
} | null;
export type Mark = {
    after: number;
    gap?: Lacking;
    position?: string;
};
/**
 * A place to save a position, such as `localStorage`.
 * @typedef {Pick<Storage, "getItem" | "setItem">} Saving
 */
/**
 * Topics whose retained messages may be missing.
 * @typedef {object} Gap
 * @property {string[] | null} topics Topics of this client. null: any of its topics.
 */
/**
 * A gap as the endpoint describes it, or null for any topic.
 * @typedef {{ topics: Set<string>, slots: Set<number> } | null} Lacking
 */
/**
 * A gap to report, or a position to reach, after this many (`after`) notifications.
 * @typedef {object} Mark
 * @property {number} after
 * @property {Lacking} [gap]
 * @property {string} [position]
 */
/**
 * Return the recovery for the option `recover`. Throws a `TypeError` if there is no place to save a position.
 * @param {boolean | string | { key: string }} recover
 * @returns {Recovery | null} null if the option does not request a recovery.
 */
export declare function recoveryOf(recover: boolean | string | {
    key: string;
}): Recovery | null;
/** The recovery of one client. */
export declare class Recovery {
    #private;
    /** Number of messages that arrived a second time, and were dropped. */
    repeats: number;
    /**
     * @param {true | string | { key: string }} recover true, a position, or the key of a saved position.
     * @param {Saving} [storage] Where to save positions, if `recover` has a key.
     */
    constructor(recover: true | string | {
        key: string;
    }, storage?: Saving);
    /** The position that the program has reached, or null if none is known yet. */
    get position(): string | null;
    /**
     * The position received last. It covers the messages up to the end of the program's queue. The client can have missed
     * later messages.
     */
    get received(): string | null;
    get isListening(): boolean;
    /** The fields of a `listen`. */
    get fields(): {
        recover: string | boolean;
    };
    /**
     * Note that the client listens, and knows which subscriptions have ended. Returns whether to report a gap: without a
     * position, nobody knows which messages the client has missed since it last listened.
     * @returns {boolean}
     */
    listens(): boolean;
    /** Note that the client no longer listens. */
    left(): void;
    /**
     * Note a received position.
     * @param {string} position
     */
    receive(position: string): void;
    /**
     * Hold a position that arrives while some subscriptions of this client have ended. It does not cover the topics of
     * these subscriptions until the client has renewed them and received their missed messages.
     * @param {string} position
     */
    hold(position: string): void;
    /** @returns {string | null} The latest held position, which now counts. */
    release(): string | null;
    /**
     * Note that the program has processed everything before this position.
     * @param {string} position
     */
    reach(position: string): void;
    /** Return whether the message with this `mid` has arrived before.
     * @param {string} mid
     */
    isRepeat(mid: string): boolean;
}
/**
 * The marks among a client's notifications. Marks at the same place are merged. So there is at most one mark more than
 * there are waiting notifications.
 */
export declare class Marks {
    #private;
    get length(): number;
    /** Add a mark after everything that has arrived.
     * @param {Mark} mark
     */
    add(mark: Mark): void;
    /**
     * Add a mark before all others. If the first mark is at the same place or earlier, the two are merged.
     * @param {Mark} mark
     */
    addFirst(mark: Mark): void;
    /**
     * Remove and return the next mark that is due after this many notifications.
     * @param {number} taken
     * @returns {Mark | undefined}
     */
    take(taken: number): Mark | undefined;
}
/**
 * Read a message that is neither a notification nor a reply: a gap, a position, or both. Throws `Garbage` if it is none
 * of these.
 * @param {Record<string, any>} message
 * @returns {{ gap?: Lacking, position?: string }}
 */
export declare function markOf(message: Record<string, any>): {
    gap?: Lacking;
    position?: string;
};
/**
 * Return the topics of this gap. If the gap names slots, these include the client's own topics in these slots. Only in
 * this case, the function calls `topicsOf`, which yields the client's topics. A topic can occur twice.
 * @param {Lacking} gap
 * @param {() => AsyncIterable<string>} topicsOf
 * @returns {Promise<string[] | null>} null: any topic.
 */
export declare function topicsLacking(gap: Lacking, topicsOf: () => AsyncIterable<string>): Promise<string[] | null>;
