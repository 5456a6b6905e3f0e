// graphile-worker, with the settings of its performance page.

import { Logger, makeWorkerUtils, run as runWorker } from "graphile-worker";
import { handled, run, setting, url } from "./measure.mjs";

const logger = new Logger(() => () => {});
const utils = await makeWorkerUtils({ connectionString: url, logger });

await run({
  setup: () => utils.migrate(),
  one: (id) => utils.addJob("noop", { id }),
  many: (ids) => utils.addJobs(ids.map((id) => ({ identifier: "noop", payload: { id } }))),
  start: () =>
    runWorker({
      connectionString: url,
      logger,
      noHandleSignals: true,
      crontab: "",
      taskList: { noop: async () => handled() },
      preset: {
        worker: {
          connectionString: url,
          concurrentJobs: setting("CONCURRENCY", 24),
          maxPoolSize: 25,
          localQueue: { size: setting("LOCAL_QUEUE", 500) },
          completeJobBatchDelay: 0,
          failJobBatchDelay: 0,
        },
      },
    }),
});
