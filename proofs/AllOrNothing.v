(** A check of several keys, decided in one step, as by [src/store/decide.rs] and [lua/checks.lua].

    - All or nothing: every charge is spent, or no key changes.
    - Each key alone keeps the bound of its algorithm, whatever else is in the checks.
    - Exact waits: the check is admitted after the longest wait of its charges, and at no time before. *)

From Proofs Require Import
  Machine Arithmetic Ring SlidingLog SlidingBuckets TokenBucket FixedWindow SlidingCounter Leases.

(** The state of one key under its policy. *)
Inductive key : Type := Key (m : machine) (s : state m).

(** A charge: the cost, and the most units of a lease. A cost of 0 spends nothing. *)
Notation ask := (Z * Z)%type.

Definition affords (now : Z) (pair : key * ask) : bool :=
  let '(Key m s, (cost, _)) := pair in cost <=? free m s now.

Definition spends (now : Z) (pair : key * ask) : Z :=
  let '(Key m s, (cost, most)) := pair in if 0 <? cost then granted (free m s now) cost most else 0.

Definition spend (now : Z) (pair : key * ask) : key :=
  let units := spends now pair in
  let '(Key m s, _) := pair in if 0 <? units then Key m (charge m s now units) else Key m s.

Definition admitted (keys : list key) (asks : list ask) (now : Z) : bool :=
  forallb (affords now) (combine keys asks).

Definition check (keys : list key) (asks : list ask) (now : Z) : list key :=
  if admitted keys asks now then map (spend now) (combine keys asks) else keys.

Theorem all_or_nothing : forall keys asks now,
  (admitted keys asks now = false /\ check keys asks now = keys) \/
  (Forall (fun pair => affords now pair = true) (combine keys asks) /\
   check keys asks now = map (spend now) (combine keys asks)).
Proof.
  intros. unfold check. destruct (admitted keys asks now) eqn:E; [right|left; auto].
  split; [|reflexivity]. apply Forall_forall. apply forallb_forall. exact E.
Qed.

Theorem an_admitted_charge_spends_its_cost : forall m s now cost most, 0 < cost ->
  affords now (Key m s, (cost, most)) = true ->
  cost <= spends now (Key m s, (cost, most)) <= free m s now.
Proof.
  cbn. intros m s now cost most Hc Ha. replace (0 <? cost) with true by (symmetry; lia).
  apply a_grant_is_free; lia.
Qed.

(** A key whose charges are a legal history. *)
Inductive stands (now : Z) : key -> Prop :=
  Stands : forall m h, legal m h -> latest h <= now -> stands now (Key m (after m h)).

Lemma stands_later : forall now later k, now <= later -> stands now k -> stands later k.
Proof. intros now later k Hl H. destruct H. constructor; [assumption|lia]. Qed.

Theorem each_key_keeps_a_legal_history : forall keys asks now,
  length keys = length asks -> Forall (stands now) keys -> Forall (stands now) (check keys asks now).
Proof.
  intros keys asks now Hlen H. destruct (all_or_nothing keys asks now) as [[_ E]|[A E]]; rewrite E;
    [assumption|]. clear E. revert asks Hlen A.
  induction H as [|k keys Hk _ IH]; intros [|[cost most] asks] Hlen A; cbn [map combine length] in *;
    try constructor; try discriminate.
  - inversion A as [|? ? A1 _]; subst. destruct Hk as [m h Hh Hl].
    set (units := spends now (Key m (after m h), (cost, most))).
    replace (spend now (Key m (after m h), (cost, most)))
      with (if 0 <? units then Key m (charge m (after m h) now units) else Key m (after m h))
      by reflexivity.
    destruct (Z.ltb_spec 0 units) as [P|P]; [|constructor; assumption].
    change (charge m (after m h) now units) with (after m ((now, units) :: h)).
    assert (H : 0 < cost) by (subst units; cbn in P; destruct (Z.ltb_spec 0 cost); lia).
    pose proof (an_admitted_charge_spends_its_cost _ _ _ _ _ H A1).
    constructor; [|cbn; lia]. cbn [legal]. repeat split; try assumption; lia.
  - inversion A; subst. apply IH; [lia|assumption].
Qed.

(** The longest wait of the charges. *)
Definition wait_of (now : Z) (pair : key * ask) : Z :=
  let '(Key m s, (cost, _)) := pair in wait m s now cost.

Definition wait_of_check (keys : list key) (asks : list ask) (now : Z) : Z :=
  fold_right (fun pair longest => Z.max (wait_of now pair) longest) 0 (combine keys asks).

(** A key that stands, and a cost that it can ever afford. *)
Inductive can_wait (now : Z) : key * ask -> Prop :=
  CanWait : forall m h cost most, exact_wait m -> legal m h -> latest h <= now ->
    0 < cost <= capacity m -> can_wait now (Key m (after m h), (cost, most)).

Theorem the_wait_of_a_check_is_exact : forall keys asks now t, now <= t ->
  Forall (can_wait now) (combine keys asks) ->
  (admitted keys asks t = true <-> now + wait_of_check keys asks now <= t).
Proof.
  intros keys asks now t Ht. unfold admitted, wait_of_check.
  induction (combine keys asks) as [|pair pairs IH]; intros H; [cbn; lia|].
  inversion H as [|? ? Hp Hps]; subst. specialize (IH Hps). cbn [forallb fold_right].
  destruct Hp as [m h cost most He Hh Hl Hc].
  destruct (He h now cost t Hh Hl Hc Ht) as [_ E]. cbn [affords wait_of].
  rewrite andb_true_iff, IH, Z.leb_le, E. lia.
Qed.

(** The standing of a key, as in [src/algorithm/state_machine.rs]: what remains, when one unit more is
    free, when all are, and when the cost is, if it has to wait. *)
Definition standing (m : machine) (s : state m) (now cost : Z) : Z * Z * Z * option Z :=
  let remaining := free m s now in
  if capacity m <=? remaining then (capacity m, 0, 0, None)
  else (remaining, wait m s now (remaining + 1), wait m s now (capacity m),
    if (remaining <? cost) && (cost <=? capacity m) then Some (wait m s now cost) else None).
