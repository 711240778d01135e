/** The repository's root; set when tests are bundled. */
declare const ROOT: string;
