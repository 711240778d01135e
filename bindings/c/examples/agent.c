/* Offers devices until standard input ends: `agent '{"listen": "127.0.0.1:0"}'`. A line of input asks for the status. */
#include <stdio.h>

#include "tapml_agent.h"

static int failed(const char *what) {
  const char *error = tapml_last_error();
  fprintf(stderr, "%s: %s\n", what, error ? error : "no reason is known");
  return 1;
}

static int print_status(const TapmlAgent *agent) {
  char *status = NULL;
  if (tapml_agent_status(agent, &status) != TAPML_OK)
    return failed("status");
  puts(status);
  fflush(stdout);
  tapml_string_free(status);
  return 0;
}

int main(int count, char **arguments) {
  TapmlAgent *agent = NULL;
  int byte, code;
  if (count != 2) {
    fprintf(stderr, "usage: agent CONFIG, with TapML %s\n", tapml_version());
    return 2;
  }
  if (tapml_agent_start(arguments[1], &agent) != TAPML_OK)
    return failed("start");
  code = print_status(agent);
  while (code == 0 && (byte = getchar()) != EOF)
    if (byte == '\n')
      code = print_status(agent);
  if (tapml_agent_stop(agent) != TAPML_OK)
    return failed("stop");
  puts("stopped");
  return code;
}
