/* An agent of TapML in this process. `docs/guide/phones.md` says how it is built and used. */

#ifndef TAPML_AGENT_H
#define TAPML_AGENT_H

#include <stdint.h>

// What was asked for was done.
#define TAPML_OK 0

// It was not done: `tapml_last_error` says why.
#define TAPML_FAILED 1

// A running agent.
typedef struct TapmlAgent TapmlAgent;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// The library's version, such as `0.2.0`. Never null, never to be freed.
const char *tapml_version(void);

// Starts an agent in this process and writes a pointer to it to `agent`; null if it fails. `config` is a JSON object in UTF-8,
// `docs/guide/phones.md` has its fields. When this returns, the agent listens; hubs are dialled in the background.
//
// # Safety
// `config` must be a string that ends with a zero byte, `agent` must point to a place for a pointer.
int32_t tapml_agent_start(const char *config,
                          struct TapmlAgent **agent);

// Writes what an agent does to `status`, as a JSON object in UTF-8, to be freed by `tapml_string_free`; null if it fails. Its devices
// are looked at anew, which may take seconds.
//
// # Safety
// `agent` must be one that was started and not stopped, `status` must point to a place for a pointer.
int32_t tapml_agent_status(const struct TapmlAgent *agent,
                           char **status);

// Stops an agent, ends its sessions, waits for it and frees it, whatever is returned: `TAPML_FAILED` says that it had ended with an
// error before.
//
// # Safety
// `agent` must be one that was started and not stopped. No other thread may use it during or after this call.
int32_t tapml_agent_stop(struct TapmlAgent *agent);

// Why the last call of this library in this thread failed; null if it did not. It is valid until this thread's next call of
// another function of this library, and is not to be freed.
const char *tapml_last_error(void);

// Frees a string that `tapml_agent_status` has made. Null is let pass.
//
// # Safety
// `string` must be null, or such a string that was not freed.
void tapml_string_free(char *string);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* TAPML_AGENT_H */
