/**
 * How a client gets the messages that it has missed, and learns of gaps. SPEC sections 8.10 and 9.
 *
 * Owns: the position, where it is saved, the messages already received, and the gaps to report, each at its place among
 * the notifications. Must never: know a connection, or call the program's handlers.
 *
 * A position covers everything that came before it. It is *received* when it comes, and *reached* when the program has
 * processed everything before it; the client saves only the reached one.
 */
/** Messages whose repetition it notices: only those under way at the moment of a failure can come twice. */
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
 * A gap in the endpoint's form; null: any topic.
 * @typedef {{ topics: Set<string>, slots: Set<number> } | null} Lacking
 */
/**
 * A report, or a position to reach, after `after` notifications.
 * @typedef {object} Mark
 * @property {number} after
 * @property {Lacking} [gap]
 * @property {string} [position]
 */
/**
 * Return the recovery for the option `recover`. Throws a `TypeError` if there is no place to save a position.
 * @param {boolean | string | { key: string }} recover
 * @returns {Recovery | null} null: the option does not request it.
 */
export declare function recoveryOf(recover: boolean | string | {
    key: string;
}): Recovery | null;
/** The recovery of one client. */
export declare class Recovery {
    #private;
    /** Messages that arrived a second time, and were dropped. */
    repeats: number;
    /**
     * @param {true | string | { key: string }} recover
     * @param {Saving} [storage] For a key.
     */
    constructor(recover: true | string | {
        key: string;
    }, storage?: Saving);
    /** The position that the program has reached. null: none is known yet. */
    get position(): string | null;
    /**
     * The position received last, up to the end of the program's queue: the client can have missed messages since then.
     */
    get received(): string | null;
    get isListening(): boolean;
    /** The fields of a `listen`. */
    get fields(): {
        recover: string | boolean;
    };
    /**
     * The client listens, and knows which subscriptions have ended. Returns whether to report a gap: without a position
     * it is unknown what it has missed since it last listened. @returns {boolean}
     */
    listens(): boolean;
    /** Note that it no longer listens. */
    left(): void;
    /**
     * Take a position.
     * @param {string} position
     */
    receive(position: string): void;
    /**
     * Handle a position while subscriptions of this client have ended, whose topics it does not cover. Hold it until they
     * are back, and their missed messages as well.
     * @param {string} position
     */
    hold(position: string): void;
    /** @returns {string | null} The latest held position, which now applies. */
    release(): string | null;
    /**
     * The program has processed everything before this one.
     * @param {string} position
     */
    reach(position: string): void;
    /** Has the message with this `mid` arrived before?
     * @param {string} mid
     */
    isRepeat(mid: string): boolean;
}
/**
 * The marks among a client's notifications. Marks at the same place are merged, so there is at most one more than there
 * are waiting notifications.
 */
export declare class Marks {
    #private;
    get length(): number;
    /** Add a mark after everything that has arrived.
     * @param {Mark} mark
     */
    add(mark: Mark): void;
    /**
     * Add a mark before all others: its predecessor was not reported, or is next.
     * @param {Mark} mark
     */
    addFirst(mark: Mark): void;
    /**
     * The next mark that is due after this many notifications, removed.
     * @param {number} taken
     * @returns {Mark | undefined}
     */
    take(taken: number): Mark | undefined;
}
/**
 * Read a message that is neither a notification nor a reply: a gap, a position, or both. `Garbage`: none of these.
 * @param {Record<string, any>} message
 * @returns {{ gap?: Lacking, position?: string }}
 */
export declare function markOf(message: Record<string, any>): {
    gap?: Lacking;
    position?: string;
};
/**
 * The topics of this gap; if it names slots, those of the client's own. Only then it calls `topicsOf`, which yields
 * them, some perhaps twice.
 * @param {Lacking} gap
 * @param {() => AsyncIterable<string>} topicsOf
 * @returns {Promise<string[] | null>} null: any topic.
 */
export declare function topicsLacking(gap: Lacking, topicsOf: () => AsyncIterable<string>): Promise<string[] | null>;
