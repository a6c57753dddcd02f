(** The table of the documentation, as one theorem.

    [machine_of] counts a quota of [L] units in a window [W], leased for [l] microseconds (0 is no lease).
    [most] is the column "most units" of the table. *)

From Proofs Require Import
  Machine Arithmetic Ring SlidingLog SlidingBuckets TokenBucket FixedWindow SlidingCounter Leases.

Inductive algorithm := Log | Buckets (n : Z) | Counter | Bucket (burst : Z) | Window.

Definition machine_of (a : algorithm) (L W l : Z) : machine :=
  match a with
  | Log => sliding_log L (W + l)
  | Buckets n => sliding_buckets L (W + l) n
  | Counter => sliding_counter L W
  | Bucket burst => token_bucket L W (burst - ceiling (L * l) W)
  | Window => fixed_window L W
  end.

Definition most (a : algorithm) (L : Z) : Z :=
  match a with
  | Log => L
  | Buckets _ => L
  | Counter => 2 * L - 1
  | Bucket burst => burst + L
  | Window => 2 * L
  end.

(** A quota that the crate accepts. *)
Definition valid (a : algorithm) (L W l : Z) : Prop :=
  0 < L /\ 0 < W /\ 0 <= l /\
  match a with
  | Buckets n => 0 < n
  | Bucket burst => 0 < burst - ceiling (L * l) W
  | _ => True
  end.

(** The time in which the units of a grant may be used. *)
Definition usable (a : algorithm) (W l : Z) : Z -> Z -> Prop :=
  match a with
  | Counter | Window => in_period W
  | _ => for_time l
  end.

(** Whatever is granted and used, leased or not: no window has more than the published bound. *)
Theorem published_bound : forall a L W l leases x, valid a L W l ->
  legal (machine_of a L W l) (grants leases) -> kept (usable a W l) leases ->
  units (within (x - W) x) (uses leases) <= most a L.
Proof.
  intros a L W l leases x (HL & HW & Hl & Ha). destruct a as [|n| |burst|]; cbn in Ha |- *;
    intros Hg Hk.
  - exact (leased_sliding_log L W l HL HW Hl leases x Hg Hk).
  - exact (leased_sliding_buckets L W l HL HW Hl n leases x Ha Hg Hk).
  - exact (leased_sliding_counter L W HL HW leases x Hg Hk).
  - exact (leased_token_bucket L W l HL HW Hl burst leases x Ha Hg Hk).
  - exact (leased_fixed_window L W HL HW leases x Hg Hk).
Qed.

(** A check without a lease is used as it is granted. *)
Definition at_once (h : history) : list lease := map (fun charge => (charge, [charge])) h.

Lemma at_once_is_kept : forall m a W l h, 0 <= l -> legal m h -> kept (usable a W l) (at_once h).
Proof.
  intros m a W l h Hl. induction h as [|[t c] h IH]; cbn; [constructor|]. intros (H & _ & Hc).
  constructor; [|exact (IH H)]. split; [|cbn; lia]. constructor; [|constructor]. split; [|lia].
  destruct a; cbn; unfold for_time, in_period; lia.
Qed.

Lemma grants_at_once : forall h, grants (at_once h) = h.
Proof. induction h as [|charge h IH]; cbn; [trivial|]. f_equal. exact IH. Qed.

Lemma uses_at_once : forall h, uses (at_once h) = h.
Proof. induction h as [|charge h IH]; cbn; [trivial|]. f_equal. exact IH. Qed.

Theorem published_bound_of_checks : forall a L W l h x, valid a L W l ->
  legal (machine_of a L W l) h -> units (within (x - W) x) h <= most a L.
Proof.
  intros a L W l h x V H. pose proof V as (_ & _ & Hl & _).
  pose proof (published_bound a L W l (at_once h) x V) as P.
  rewrite grants_at_once, uses_at_once in P. exact (P H (at_once_is_kept _ a W l h Hl H)).
Qed.

(** Waiting [retry_after] succeeds, and a microsecond less fails. *)
Theorem published_waits : forall a L W l, valid a L W l -> exact_wait (machine_of a L W l).
Proof.
  intros a L W l (HL & HW & Hl & Ha). destruct a as [|n| |burst|]; cbn in Ha |- *.
  - apply sliding_log_wait; lia.
  - apply sliding_buckets_wait; lia.
  - apply sliding_counter_wait; lia.
  - apply token_bucket_wait; lia.
  - apply fixed_window_wait; lia.
Qed.
