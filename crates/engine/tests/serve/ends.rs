//! Every request ends once: refusals, cancellations, failures of the model, shutdown.

use super::*;
use model::expected_text;
use tapml_engine::{Sampling, SubmitError};

#[test]
fn wrong_requests_are_refused() {
    let (engine, _) = start(LIMITS, EngineOptions::default());
    let refused = |prompt: &[u32], options: RequestOptions| {
        let (request, events) = request(prompt, options, None);
        let refusal = engine.submit(request).unwrap_err();
        assert!(matches!(refusal, SubmitError::Invalid(_)), "{refusal:?}");
        assert!(events.recv_timeout(Duration::from_secs(60)).is_err(), "a refused request is told something");
        refusal.to_string()
    };
    assert!(refused(&[], request_options(1, 0)).contains("no tokens"));
    assert!(refused(&prompt(201, 0), request_options(1, 0)).contains("200"));
    assert!(refused(&[61], request_options(1, 0)).contains("token 61"));
    let hot = Sampling { temperature: -1.0, ..Sampling::default() };
    assert!(refused(&[1], RequestOptions { sampling: hot, ..request_options(1, 0) }).contains("temperature"));
    let biased = Sampling { logit_bias: vec![(99, 1.0)], ..Sampling::default() };
    assert!(refused(&[1], RequestOptions { sampling: biased, ..request_options(1, 0) }).contains("token 99"));
    assert!(
        refused(&[1], RequestOptions { logprobs: Some(9999), ..request_options(1, 0) }).contains("logprobs")
    );
    // Fewer pages than the context: a prompt that never fits is refused, too.
    let (small, _) = start(BatchLimits { pages: 3, ..LIMITS }, EngineOptions::default());
    assert_eq!(small.limits().context, 12);
    let (long, _) = request(&prompt(13, 0), request_options(1, 0), None);
    assert!(matches!(small.submit(long), Err(SubmitError::Invalid(_))));
    assert!(
        Engine::start(model::HashModel::new(BatchLimits { rows: 0, ..LIMITS }).0, EngineOptions::default())
            .is_err()
    );
    let none = EngineOptions { queue: 0, ..EngineOptions::default() };
    assert!(Engine::start(model::HashModel::new(LIMITS).0, none).is_err());
}

#[test]
fn a_full_context_ends_the_text() {
    let limits = BatchLimits { pages: 3, ..LIMITS };
    let (engine, watch) = start(limits, EngineOptions::default());
    for length in [1, 5, 11, 12] {
        let answer = ask(&engine, &prompt(length, 4), request_options(50, 0)).answer();
        assert_eq!((answer.finish(), answer.tokens.len()), (Finish::Context, 13 - length));
    }
    assert_clean(&engine, &watch);
}

#[test]
fn a_full_queue_refuses() {
    let (engine, watch) = start(LIMITS, EngineOptions { queue: 20, ..EngineOptions::default() });
    watch.lock().unwrap().hold = true;
    let mut asked = Vec::new();
    let refusal = loop {
        let (request, events) = request(&prompt(9, 1), request_options(3, 0), None);
        match engine.submit(request) {
            Ok(handle) => asked.push(Asked { handle, events }),
            Err(refusal) => break refusal,
        }
        assert!(asked.len() < 100);
    };
    assert!(matches!(refusal, SubmitError::QueueFull(_)), "{refusal:?}");
    assert!(engine.stats().current_step.is_some() || engine.stats().running == 0);
    watch.lock().unwrap().hold = false;
    asked.into_iter().for_each(|asked| assert_eq!(asked.answer().finish(), Finish::Length));
    assert_clean(&engine, &watch);
}

#[test]
fn cancelled_requests_leave_within_a_step() {
    let (engine, watch) = start(LIMITS, EngineOptions::default());
    let (mut request, events) = request(&prompt(9, 1), request_options(150, 0), None);
    let (held, mut tell, mut told) = (watch.clone(), request.events, 0);
    request.events = Box::new(move |event| {
        told += 1;
        held.lock().unwrap().hold |= told == 3;
        tell(event)
    });
    let handle = engine.submit(request).unwrap();
    // At the third token the model is held: one more step may have begun.
    while !watch.lock().unwrap().hold {
        std::thread::yield_now();
    }
    handle.cancel();
    watch.lock().unwrap().hold = false;
    let answer = Asked { handle, events }.answer();
    assert_eq!(answer.finish(), Finish::Cancelled);
    assert!((3..=4).contains(&answer.usage().new_tokens), "{:?}", answer.usage());
    assert_eq!(answer.tokens.len(), answer.usage().new_tokens);
    assert_clean(&engine, &watch);
}

#[test]
fn dropping_the_handle_or_the_receiver_cancels() {
    let (engine, watch) = start(LIMITS, EngineOptions::default());
    for drops_handle in [true, false] {
        // Held, so that the text is not complete before.
        watch.lock().unwrap().hold = true;
        let Asked { handle, events } = ask(&engine, &prompt(9, 1), request_options(150, 0));
        if drops_handle {
            drop(handle);
            watch.lock().unwrap().hold = false;
            let last = events.iter().last().unwrap();
            assert!(matches!(last, RequestEvent::Finished(Finish::Cancelled, _)), "{last:?}");
        } else {
            drop(events);
            watch.lock().unwrap().hold = false;
            while engine.stats().finished + engine.stats().cancelled < 2 {
                std::thread::yield_now();
            }
            drop(handle);
        }
    }
    assert_eq!(assert_clean(&engine, &watch).cancelled, 2);
}

#[test]
fn clients_that_leave_at_random_change_nothing_for_others() {
    let mut random = fastrand::Rng::with_seed(8);
    let limits = BatchLimits { pages: 80, ..LIMITS };
    let (engine, watch) = start(limits, EngineOptions::default());
    let mut stay = Vec::new();
    for n in 0..200u64 {
        let options = request_options(random.usize(1..30), n);
        let prompt = prompt(random.usize(1..90), n % 9);
        let asked = ask(&engine, &prompt, options.clone());
        match random.u8(0..3) {
            0 => drop(asked),
            1 => {
                let _ = asked.events.recv_timeout(Duration::from_micros(random.u64(0..2000)));
                asked.handle.cancel();
            }
            _ => stay.push((asked, prompt, options)),
        }
    }
    for (asked, prompt, options) in stay {
        assert_eq!(asked.answer().ids(), expected_text(&prompt, &options, &limits));
    }
    while engine.stats().running + engine.stats().waiting > 0 {
        std::thread::yield_now();
    }
    let stats = assert_clean(&engine, &watch);
    assert!(stats.cancelled > 0 && stats.failed == 0, "{stats:?}");
}

#[test]
fn failed_steps_are_computed_again() {
    let (engine, watch) = start(LIMITS, EngineOptions::default());
    watch.lock().unwrap().failures = vec![1, 9, 25, 45];
    let prompts: Vec<Vec<u32>> = (0..20).map(|n| prompt(5 * n as usize + 1, n)).collect();
    let asked: Vec<Asked> =
        prompts.iter().zip(0..).map(|(p, n)| ask(&engine, p, request_options(24, n))).collect();
    for ((asked, prompt), n) in asked.into_iter().zip(&prompts).zip(0..) {
        assert_eq!(asked.answer().ids(), expected_text(prompt, &request_options(24, n), &LIMITS));
    }
    let stats = assert_clean(&engine, &watch);
    assert_eq!((stats.failed_steps, watch.lock().unwrap().resets), (4, 4));
}

#[test]
fn a_model_that_always_fails_fails_every_request_in_the_end() {
    let (engine, watch) = start(LIMITS, EngineOptions { retries: 3, ..EngineOptions::default() });
    watch.lock().unwrap().failures = (3..10_000).collect();
    let asked: Vec<Asked> = (0..40).map(|n| ask(&engine, &prompt(9, n), request_options(24, n))).collect();
    asked.into_iter().for_each(|asked| assert!(asked.answer().end.is_err()));
    let stats = assert_clean(&engine, &watch);
    assert!(stats.failed_steps <= 4 * 40, "{stats:?}");
}

#[test]
fn only_the_request_to_blame_fails() {
    for panics in [false, true] {
        let (engine, watch) = start(LIMITS, EngineOptions::default());
        watch.lock().unwrap().hold = true;
        // No other text has this token.
        let bad = 60;
        let prompts: Vec<Vec<u32>> = (0..12).map(|n| prompt(5 * n as usize + 1, n)).collect();
        let mut prompts: Vec<Vec<u32>> =
            prompts.into_iter().map(|p| p.into_iter().map(|id| id % 60).collect()).collect();
        prompts[4][7] = bad;
        let never = vec![(bad, -100.0)];
        let options = |n| {
            let sampling = Sampling { logit_bias: never.clone(), ..model::sampling(n) };
            RequestOptions { sampling, ..request_options(24, n) }
        };
        let asked: Vec<Asked> = prompts.iter().zip(0..).map(|(p, n)| ask(&engine, p, options(n))).collect();
        {
            let mut watch = watch.lock().unwrap();
            let token = Some(bad);
            *(if panics { &mut watch.panic } else { &mut watch.poison }) = token;
            watch.hold = false;
        }
        for ((asked, prompt), n) in asked.into_iter().zip(&prompts).zip(0..) {
            let answer = asked.answer();
            if n == 4 {
                let error = answer.end.unwrap_err().to_string();
                assert!(error.contains(if panics { "panicked" } else { "plug" }), "{error}");
            } else {
                assert_eq!(answer.ids(), expected_text(prompt, &options(n), &LIMITS), "request {n}");
            }
        }
        let stats = assert_clean(&engine, &watch);
        assert_eq!((stats.failed, stats.failed_steps), (1, 3), "together, together, alone");
    }
}

#[test]
fn a_lost_device_fails_all_and_serves_again_when_it_is_back() {
    let (engine, watch) = start(LIMITS, EngineOptions::default());
    {
        let mut watch = watch.lock().unwrap();
        (watch.failures, watch.lost) = (vec![3], true);
    }
    let asked: Vec<Asked> = (0..20).map(|n| ask(&engine, &prompt(30, n), request_options(24, n))).collect();
    for asked in asked {
        let error = asked.answer().end.unwrap_err().to_string();
        assert!(error.contains("the device is gone"), "{error}");
    }
    assert!(ask(&engine, &prompt(3, 0), request_options(1, 0)).answer().end.is_err());
    watch.lock().unwrap().lost = false;
    let answer = ask(&engine, &prompt(30, 3), request_options(24, 3)).answer();
    assert_eq!(answer.ids(), expected_text(&prompt(30, 3), &request_options(24, 3), &LIMITS));
    assert_clean(&engine, &watch);
}

#[test]
fn shutdown_lets_running_requests_end_and_fails_the_rest() {
    let (engine, watch) = start(LIMITS, EngineOptions::default());
    let short: Vec<Asked> = (0..8).map(|n| ask(&engine, &prompt(9, n), request_options(5, n))).collect();
    engine.shut_down(Duration::from_secs(60));
    short.into_iter().for_each(|asked| assert_eq!(asked.answer().finish(), Finish::Length));
    let (late, _) = request(&[1], request_options(1, 0), None);
    assert!(matches!(engine.submit(late), Err(SubmitError::ShuttingDown(_))));
    assert_clean(&engine, &watch);

    let (engine, watch) = start(LIMITS, EngineOptions::default());
    watch.lock().unwrap().hold = true;
    let asked: Vec<Asked> = (0..40).map(|n| ask(&engine, &prompt(9, n), request_options(50, n))).collect();
    std::thread::scope(|scope| {
        scope.spawn(|| engine.shut_down(Duration::ZERO));
        while matches!(
            engine.submit(request(&[1], request_options(1, 0), None).0),
            Ok(_) | Err(SubmitError::QueueFull(_))
        ) {}
        watch.lock().unwrap().hold = false;
    });
    for asked in asked {
        let error = asked.answer().end.unwrap_err().to_string();
        assert!(error.contains("shutting down"), "{error}");
    }
    assert_eq!(engine.stats().pages_used, 0);
}

#[test]
fn a_panicking_receiver_harms_nobody_else() {
    let (engine, watch) = start(LIMITS, EngineOptions::default());
    let (mut bad, _) = request(&prompt(9, 1), request_options(50, 0), None);
    let mut told = 0;
    bad.events = Box::new(move |_| {
        told += 1;
        assert!(told < 3, "this receiver panics on purpose");
        ControlFlow::Continue(())
    });
    let bad = engine.submit(bad).unwrap();
    let answer = ask(&engine, &prompt(9, 2), request_options(50, 3)).answer();
    assert_eq!(answer.ids(), expected_text(&prompt(9, 2), &request_options(50, 3), &LIMITS));
    drop(bad);
    assert_clean(&engine, &watch);
}
