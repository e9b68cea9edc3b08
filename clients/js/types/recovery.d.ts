/**
 * How a client learns what it has missed, and whether that was all. SPEC sections 8.10 and 9.
 *
 * Owns: the position, where it is saved, the messages that have come already, and the gaps that are to be told, each at
 * its place among the notifications. Must never: know a connection, or call the program's handlers.
 *
 * A position covers everything that came before it. So it is *received* when it comes, and *reached* when the program
 * has processed what came before it; only that one is saved.
 */
/** Messages whose repetition is noticed: what may come twice is what was under way at the moment of a failure. */
export declare const MIDS_MAX = 10000;
/** Topics that one gap names. More of them are told as any. */
export declare const GAP_TOPICS_MAX = 10000;
export type Saving = Pick<Storage, "getItem" | "setItem">;
export type Gap = {
    /**
     * Of this client. null: any of its topics.
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
 * Where a position is saved: `localStorage` is one.
 * @typedef {Pick<Storage, "getItem" | "setItem">} Saving
 */
/**
 * Topics of which kept messages may be lacking.
 * @typedef {object} Gap
 * @property {string[] | null} topics Of this client. null: any of its topics.
 */
/**
 * As an endpoint tells it; null: any topic.
 * @typedef {{ topics: Set<string>, slots: Set<number> } | null} Lacking
 */
/**
 * What is to be told, or reached, after so many notifications.
 * @typedef {object} Mark
 * @property {number} after
 * @property {Lacking} [gap]
 * @property {string} [position]
 */
/**
 * As the option `recover` asks for it. A `TypeError`: there is nowhere to save a position.
 * @param {boolean | string | { key: string }} recover
 * @returns {Recovery | null} null: it does not.
 */
export declare function recoveryOf(recover: boolean | string | {
    key: string;
}): Recovery | null;
/** One client's. */
export declare class Recovery {
    #private;
    /** Messages that came again, and were dropped. */
    repeats: number;
    /**
     * @param {true | string | { key: string }} recover
     * @param {Saving} [storage] For a key.
     */
    constructor(recover: true | string | {
        key: string;
    }, storage?: Saving);
    /** What the program has processed. null: no position is known yet. */
    get position(): string | null;
    /** What has come is in the program's queue, up to here: since when messages may have been missed. */
    get received(): string | null;
    get isListening(): boolean;
    /** The fields of a `listen`. */
    get fields(): {
        recover: string | boolean;
    };
    /**
     * The client listens, and what of its subscriptions has ended is known. Gives whether a gap is to be told: without a
     * position nobody knows what it has missed since it listened the last time.
     * @returns {boolean}
     */
    listens(): boolean;
    /** It listens no more. */
    left(): void;
    /**
     * A position has come.
     * @param {string} position
     */
    receive(position: string): void;
    /**
     * A position has come while subscriptions of this client have ended: it does not cover their topics. It is kept until
     * they are back, with what was missed of them.
     * @param {string} position
     */
    hold(position: string): void;
    /** @returns {string | null} The latest that was held, which holds now. */
    release(): string | null;
    /**
     * The program has processed what came before this one.
     * @param {string} position
     */
    reach(position: string): void;
    /**
     * Has the message with this `mid` come already?
     * @param {string} mid
     */
    isRepeat(mid: string): boolean;
}
/**
 * The marks among a client's notifications. What has the same place is one, so that they are no more than the
 * notifications that wait, and one.
 */
export declare class Marks {
    #private;
    get length(): number;
    /**
     * Behind all that have come.
     * @param {Mark} mark
     */
    add(mark: Mark): void;
    /**
     * Before all others: what was due has not been told, or is told next.
     * @param {Mark} mark
     */
    addFirst(mark: Mark): void;
    /**
     * The next that is due when so many notifications have been taken; it is gone then.
     * @param {number} taken
     * @returns {Mark | undefined}
     */
    take(taken: number): Mark | undefined;
}
/**
 * A message that is neither a notification nor a reply: a gap, a position, or both. `Garbage`: it is none of these.
 * @param {Record<string, any>} message
 * @returns {{ gap?: Lacking, position?: string }}
 */
export declare function markOf(message: Record<string, any>): {
    gap?: Lacking;
    position?: string;
};
/**
 * The topics of this gap, of the client's own where it names slots. `topicsOf` gives these, some perhaps twice; it is
 * asked only then.
 * @param {Lacking} gap
 * @param {() => AsyncIterable<string>} topicsOf
 * @returns {Promise<string[] | null>} null: any.
 */
export declare function topicsLacking(gap: Lacking, topicsOf: () => AsyncIterable<string>): Promise<string[] | null>;
