(** The log that [SlidingLog] and [SlidingBuckets] share. The model of [src/algorithm/ring.rs] and
    [lua/ring.lua] under one quota.

    A record has a stamp and its units, and counts for one window after its stamp. A stamp is the time
    of the charge or later: [stamp] says which, and may look at the records. Charges before the stamp of
    the newest record count in it.

    Whatever the stamps are, no window has more than [L] units: a charge counts until a window after it
    has passed, or longer. *)

From Proofs Require Import Machine Arithmetic.

Section Ring.
Variables L W : Z.
Variable stamp : list (Z * Z) -> Z -> Z.
Hypothesis limit_positive : 0 < L.
Hypothesis window_positive : 0 < W.
Hypothesis stamp_is_not_before : forall records now, now <= stamp records now.

(** The records that count at a time. The newest is the first. *)
Fixpoint live (now : Z) (records : list (Z * Z)) : list (Z * Z) :=
  match records with
  | [] => []
  | (s, u) :: older => if now <? s + W then (s, u) :: live now older else live now older
  end.

Fixpoint total (records : list (Z * Z)) : Z :=
  match records with [] => 0 | (_, u) :: older => u + total older end.

Definition add (records : list (Z * Z)) (now c : Z) : list (Z * Z) :=
  match records with
  | [] => [(stamp [] now, c)]
  | (newest, u) :: older =>
      let s := if now <? newest then newest else stamp records now in
      if s =? newest then (newest, u + c) :: older else (s, c) :: records
  end.

(** The time at which the records that do not fit into [room] have left. *)
Fixpoint fits_at (room now : Z) (records : list (Z * Z)) : Z :=
  match records with
  | [] => now
  | (s, u) :: older => if room <? u then s + W else fits_at (room - u) now older
  end.

Definition ring : machine := {|
  state := list (Z * Z);
  empty := [];
  capacity := L;
  free records now := Z.max 0 (L - total (live now records));
  charge records now c := add (live now records) now c;
  wait records now c := fits_at (L - c) now (live now records) - now
|}.

(** Records with stamps from [from] down, none of which is empty. *)
Fixpoint ordered (from : Z) (records : list (Z * Z)) : Prop :=
  match records with
  | [] => True
  | (s, u) :: older => s <= from /\ 0 < u /\ ordered s older
  end.

Lemma ordered_mono : forall a b records, a <= b -> ordered a records -> ordered b records.
Proof. destruct records as [|[s u] r]; cbn; intuition lia. Qed.

Lemma live_ordered : forall now from records, ordered from records -> ordered from (live now records).
Proof.
  intros now from records. revert from. induction records as [|[s u] r IH]; cbn; [trivial|].
  intros from (Hs & Hu & Hr). destruct (now <? s + W); cbn; [auto|].
  eapply ordered_mono; [|apply IH; exact Hr]. assumption.
Qed.

Lemma total_nonneg : forall from records, ordered from records -> 0 <= total records.
Proof.
  intros from records. revert from. induction records as [|[s u] r IH]; cbn; intros; [lia|].
  destruct H as (_ & Hu & Hr). specialize (IH _ Hr). lia.
Qed.

Definition newest (records : list (Z * Z)) : Z := match records with [] => 0 | (s, _) :: _ => s end.

Lemma ordered_newest : forall from records, ordered from records -> ordered (newest records) records.
Proof. destruct records as [|[s u] r]; cbn; intuition lia. Qed.

Lemma add_ordered : forall records now c, 0 < c -> ordered (newest records) records ->
  ordered (newest (add records now c)) (add records now c).
Proof.
  destruct records as [|[s u] r]; cbn; intros now c Hc H; [lia|].
  destruct H as (_ & Hu & Hr).
  pose proof (stamp_is_not_before ((s, u) :: r) now).
  destruct (Z.ltb_spec now s); [rewrite Z.eqb_refl; cbn; intuition lia|].
  destruct (Z.eqb_spec (stamp ((s, u) :: r) now) s); cbn; intuition lia.
Qed.

Lemma reached_is_ordered : forall h, legal ring h ->
  ordered (newest (after ring h)) (after ring h).
Proof.
  induction h as [|[t c] h IH]; cbn; [trivial|]. intros (H & _ & Hc).
  apply add_ordered; [lia|]. eapply ordered_newest. apply live_ordered. exact (IH H).
Qed.

(** The units of the records whose stamps are after a time. *)
Fixpoint after_time (from : Z) (records : list (Z * Z)) : Z :=
  match records with
  | [] => 0
  | (s, u) :: older => (if from <? s then u else 0) + after_time from older
  end.

Lemma live_is_after_time : forall now records, total (live now records) = after_time (now - W) records.
Proof.
  induction records as [|[s u] r IH]; cbn; [trivial|].
  replace (now - W <? s) with (now <? s + W) by lia. destruct (now <? s + W); cbn; lia.
Qed.

Lemma live_keeps_after_time : forall now from records, now - W <= from ->
  after_time from (live now records) = after_time from records.
Proof.
  intros now from records Hf. induction records as [|[s u] r IH]; cbn; [trivial|].
  destruct (Z.ltb_spec now (s + W)); cbn; [lia|].
  replace (from <? s) with false by (symmetry; lia). lia.
Qed.

Lemma after_time_mono : forall a b bound records, ordered bound records -> a <= b ->
  after_time b records <= after_time a records.
Proof.
  intros a b bound records. revert bound. induction records as [|[s u] r IH]; cbn; [lia|].
  intros bound (_ & Hu & Hr) Hab. specialize (IH _ Hr Hab).
  destruct (Z.ltb_spec b s), (Z.ltb_spec a s); lia.
Qed.

Lemma add_after_time : forall records now c from, 0 < c ->
  after_time from records + (if from <? now then c else 0) <= after_time from (add records now c).
Proof.
  destruct records as [|[s u] r]; cbn; intros now c from Hc.
  - pose proof (stamp_is_not_before [] now).
    destruct (Z.ltb_spec from now), (Z.ltb_spec from (stamp [] now)); lia.
  - pose proof (stamp_is_not_before ((s, u) :: r) now).
    destruct (Z.ltb_spec now s).
    + rewrite Z.eqb_refl. cbn. destruct (Z.ltb_spec from now), (Z.ltb_spec from s); lia.
    + destruct (Z.eqb_spec (stamp ((s, u) :: r) now) s) as [E|E]; cbn;
        destruct (Z.ltb_spec from now), (Z.ltb_spec from s);
        try destruct (Z.ltb_spec from (stamp ((s, u) :: r) now)); lia.
Qed.

(** No charge of the last window is forgotten. *)
Lemma records_hold_the_window : forall h from, legal ring h -> latest h - W <= from ->
  units (newer from) h <= after_time from (after ring h).
Proof.
  induction h as [|[t c] h IH]; cbn [units after latest]; intros from H Hf; [cbn; lia|].
  destruct H as (H & Ht & Hc). specialize (IH from H ltac:(lia)). cbn [charge ring].
  pose proof (add_after_time (live t (after ring h)) t c from ltac:(lia)).
  rewrite live_keeps_after_time in H0 by lia. unfold newer at 1. lia.
Qed.

Theorem ring_bound : bounded ring W L.
Proof.
  apply bound_of_windows; [lia|]. intros [|[t c] h] x H Hl Hx; [cbn; lia|].
  cbn [units latest] in *. destruct H as (H & Ht & Hc).
  replace (newer (x - W) t) with true by (unfold newer; symmetry; lia).
  pose proof (records_hold_the_window h (x - W) H ltac:(lia)).
  pose proof (reached_is_ordered h H) as O.
  pose proof (after_time_mono (t - W) (x - W) _ _ O ltac:(lia)).
  cbn [free ring] in Hc. rewrite live_is_after_time in Hc. lia.
Qed.

(** The wait ends when the newest record that does not fit leaves. *)
Lemma fits_at_is_exact : forall now records room from t, ordered from records -> now <= t ->
  0 <= room -> Forall (fun record => now < fst record + W) records ->
  now <= fits_at room now records /\
  (total (live t records) <= room <-> fits_at room now records <= t).
Proof.
  intros now records. induction records as [|[s u] r IH]; intros room from t H Ht Hr Hn;
    [cbn; lia|].
  destruct H as (Hs & Hu & Ho). inversion Hn as [|? ? Hn1 Hn2]; subst. cbn in Hn1. cbn.
  pose proof (total_nonneg s (live t r) (live_ordered t s r Ho)).
  assert (G : t >= s + W -> live t r = []).
  { intros Hg. clear - Hg Ho. revert s Hg Ho. induction r as [|[s' u'] r IH]; cbn; [trivial|].
    intros s Hg (Hs & _ & Ho). replace (t <? s' + W) with false by (symmetry; lia).
    apply (IH s'); [lia|exact Ho]. }
  destruct (Z.ltb_spec room u).
  - destruct (Z.ltb_spec t (s + W)); cbn; [lia|]. rewrite G by lia. cbn. lia.
  - destruct (IH (room - u) s t Ho Ht ltac:(lia) Hn2) as [I1 I2]. split; [exact I1|].
    destruct (Z.ltb_spec t (s + W)); cbn; [lia|].
    rewrite G in * by lia. cbn in *. lia.
Qed.

Lemma live_again : forall now t records, now <= t -> live t (live now records) = live t records.
Proof.
  intros now t records Ht. induction records as [|[s u] r IH]; cbn; [trivial|].
  destruct (Z.ltb_spec now (s + W)); cbn; [rewrite IH; reflexivity|].
  replace (t <? s + W) with false by (symmetry; lia). exact IH.
Qed.

Lemma live_counts : forall now records,
  Forall (fun record => now < fst record + W) (live now records).
Proof.
  induction records as [|[s u] r IH]; cbn; [constructor|].
  destruct (Z.ltb_spec now (s + W)); [constructor; cbn|]; assumption.
Qed.

Theorem ring_wait : exact_wait ring.
Proof.
  intros h now c t H Hl Hc Ht. cbn [wait free capacity ring] in *.
  pose proof (live_ordered now _ _ (reached_is_ordered h H)) as O.
  destruct (fits_at_is_exact now (live now (after ring h)) (L - c) _ t O Ht ltac:(lia)) as [F1 F2].
  - apply live_counts.
  - rewrite live_again in F2 by assumption. split; lia.
Qed.
End Ring.
